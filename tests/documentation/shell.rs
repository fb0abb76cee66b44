//! Which commands of the documentation are run here, and which are not, with the reason.

use crate::blocks::Block;
use crate::{ask, read, said, sidecar};
use std::process::Command;

/// Programs that need what a test does not have. Commands with one of them are not run; those beside
/// them are. What Helm is asked with the chart is rendered: see `session`.
const TOOLS: &[(&str, &str)] = &[
    ("kubectl", "needs a cluster"),
    ("istioctl", "needs a cluster"),
    ("vllm", "needs vLLM"),
    ("docker", "needs a registry"),
    ("skopeo", "needs a registry"),
    ("crane", "needs a registry"),
    ("oras", "needs a registry"),
    ("cosign", "needs a registry"),
    ("ctr", "needs containerd"),
    ("kind", "needs a cluster"),
    ("systemctl", "needs systemd"),
];

/// Blocks that are not run for another reason, by their page and how they begin.
const LISTED: &[(&str, &str, &str)] = &[
    (
        "docs/exact-routing.md",
        "install -d /run/rolter",
        "writes to the machine's /run, and reads its /etc",
    ),
    (
        "docs/response-cache.md",
        "make build ",
        "writes to the machine's /run; the quick start does the same on its own paths",
    ),
    (
        "docs/check.md",
        "rolter-sidecar check",
        "each mistake has a test of its own, and the page is compared with them",
    ),
    ("README.md", "make up", "the quick start runs it"),
    (
        "docs/releasing.md",
        "python3 -m json.tool",
        "looks at what `make image` leaves",
    ),
    (
        "docs/releasing.md",
        "sha256sum --check",
        "looks at what `make release` leaves; the test of that does the same",
    ),
];

/// What the Makefile makes that takes minutes. Each has a test of its own, or is one.
const LONG: &[(&str, &str)] = &[
    ("demo", "its plays are tested one by one"),
    ("test", "is what runs this"),
    ("bench", "measures"),
    ("bench-peers", "measures, for an hour"),
    ("image", "builds images; what writes them is tested"),
    ("release", "packs a release; what it packs is tested"),
    ("test-release", "tests a release"),
];

/// What is run of a block.
pub(crate) fn run(block: &Block) -> Option<String> {
    let is_listed = |(page, beginning, _): &&(&str, &str, &str)| {
        block.page == *page && block.text.starts_with(beginning)
    };
    if block.language != "sh" || LISTED.iter().any(|listed| is_listed(&listed)) {
        return None;
    }
    let mut statements = statements(&block.text);
    statements.retain(|statement| reason(statement).is_none());
    let script = statements.concat();
    (!commands(&script).is_empty()).then_some(script)
}

/// The statements of a script: each ends with the line at which Bash can read what there is so far.
fn statements(script: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut open = String::new();
    for line in script.lines() {
        open += line;
        open.push('\n');
        let read = ask(&["bash", "-n"], "block.sh", &open);
        if !line.ends_with('\\') && read.is_ok_and(|said| said.is_empty()) {
            statements.push(std::mem::take(&mut open));
        }
    }
    statements.extend((!open.is_empty()).then_some(open));
    statements
}

/// Why a statement is not run.
fn reason(statement: &str) -> Option<&'static str> {
    let commands = commands(statement);
    let tool = |command: &Vec<&str>| {
        let program = command.first()?;
        let makes = |(target, _): &&(&str, &str)| {
            *program == "make" && command.get(1).is_some_and(|word| word == target)
        };
        let tool = TOOLS.iter().find(|(tool, _)| tool == program);
        tool.or_else(|| LONG.iter().find(makes))
    };
    commands.iter().find_map(tool).map(|(_, reason)| *reason)
}

/// What is listed, but is in no page.
pub(crate) fn unused(blocks: &[Block]) -> Vec<&'static str> {
    let is_unused = |(page, beginning, _): &&(&str, &str, &str)| {
        let mut own = blocks.iter().filter(|block| block.page == *page).peekable();
        own.peek().is_some() && !own.any(|block| block.text.starts_with(beginning))
    };
    let unused = LISTED.iter().filter(is_unused);
    unused.map(|(_, beginning, _)| *beginning).collect()
}

/// What can be told of commands without running them: they can be parsed, and what they ask of this
/// project exists.
pub(crate) fn check(block: &Block) -> Result<(), String> {
    ask(&["bash", "-n"], "block.sh", &block.text)?;
    let makefile = read("Makefile");
    for command in commands(&block.text) {
        let Some((program, arguments)) = command.split_first() else {
            continue;
        };
        let name = program.rsplit('/').next().unwrap_or_default();
        match (name, arguments.first()) {
            ("make", Some(target)) => {
                let is_rule = |line: &str| line.starts_with(&format!("{target}:"));
                if !makefile.lines().any(is_rule) {
                    return Err(format!("the Makefile has no {target}"));
                }
            }
            ("rolter-sidecar", Some(subcommand)) if !subcommand.starts_with('-') => {
                let usage = sidecar(&[subcommand, "--help"])?;
                flags_are_known(&usage, arguments, subcommand)?;
            }
            ("helm", Some(_)) => {
                let words = arguments.iter().position(|word| *word == "-n");
                let words = words.map_or(arguments, |place| &arguments[place + 2..]);
                let helm = e2e::chart::helm().display().to_string();
                let subcommand = words.first().copied().unwrap_or_default();
                let usage = said(
                    &Command::new(helm)
                        .args([subcommand, "--help"])
                        .output()
                        .unwrap(),
                )?;
                flags_are_known(&usage, words, subcommand)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn flags_are_known(usage: &str, words: &[&str], whose: &str) -> Result<(), String> {
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        let flag = flag.split('=').next().unwrap_or_default();
        if !usage
            .split_whitespace()
            .any(|word| word.trim_end_matches([',', '.']) == flag)
        {
            return Err(format!("{whose} has no {flag}"));
        }
    }
    Ok(())
}

/// The commands of a script, word by word, as far as a glance can tell: without comments, documents
/// that go to standard input, variables and who runs them.
fn commands(script: &str) -> Vec<Vec<&str>> {
    let mut commands = Vec::new();
    let mut ending: Option<&str> = None;
    let mut goes_on = false;
    for line in script.lines() {
        if let Some(end) = ending {
            if line.trim() == end {
                ending = None;
            }
            continue;
        }
        if let Some((_, end)) = line.split_once("<<") {
            ending = Some(end.trim_matches(['\'', '"', '-', ' ']));
        }
        let line = line.split(" #").next().unwrap_or_default();
        let was_begun = std::mem::replace(&mut goes_on, line.ends_with('\\'));
        let line = line.trim_end_matches('\\');
        for (index, part) in line
            .split("&&")
            .flat_map(|part| part.split(['|', ';']))
            .enumerate()
        {
            let words = part.split_whitespace();
            let is_prefix = |word: &&str| {
                let is_variable = word.split_once('=').is_some_and(|(name, _)| {
                    !name.is_empty()
                        && name
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                });
                is_variable || *word == "sudo" || *word == "exec" || *word == "env"
            };
            let words: Vec<&str> = words.skip_while(is_prefix).collect();
            if was_begun && index == 0 {
                if let Some(last) = commands.last_mut() {
                    Vec::extend(last, words);
                }
            } else if words.first().is_some_and(|word| !word.starts_with('#')) {
                commands.push(words);
            }
        }
    }
    commands
}
