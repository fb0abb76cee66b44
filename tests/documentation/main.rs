//! What the documentation shows works: every fenced block of README.md and docs/ is run, or read by
//! who would read it. The quick start is run word for word.
//!
//! | module | idea |
//! |---|---|
//! | `blocks` | the blocks of a page, with their places |
//! | `shell` | which commands are run, and which are not, for what reason |
//! | `session` | running the commands of a page, and comparing what they print |
//! | `yaml` | what a block of YAML is, and who reads it |
//! | `envoy` | parts of Envoy's configuration, put into a whole one |
//! | `data` | JSON, TOML and the rest |
//!
//! A block that no rule is for fails.

mod blocks;
mod data;
mod envoy;
mod session;
mod shell;
mod yaml;

use blocks::{Block, pages};
use e2e::{setup, start};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tokio::sync::Mutex;

/// The page that is run as it stands.
const QUICK_START: &str = "docs/quick-start.md";

/// `make up` builds the programs that other tests run: one at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A file of the project.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What a program says, with whether it was content.
fn said(output: &Output) -> Result<String, String> {
    let both = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let all = both.concat();
    output.status.success().then_some(all.clone()).ok_or(all)
}

/// What `rolter-sidecar` says to these arguments.
fn sidecar(arguments: &[&str]) -> Result<String, String> {
    let program = fleet::sidecar_binary().unwrap_or_else(|error| panic!("{error}"));
    let output = Command::new(program).args(arguments).output().unwrap();
    said(&output)
}

/// What a program says of a text in a file of this name, given as the last argument. All of it is an
/// error where the program fails.
fn ask(program: &[&str], name: &str, text: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    let (first, rest) = program.split_first().unwrap();
    let output = Command::new(first).args(rest).arg(path).output().unwrap();
    said(&output)
}

/// What is wrong with blocks that are not run.
fn judge(blocks: &[Block]) -> Vec<String> {
    let mut found = Vec::new();
    let mut parts: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
    for block in blocks {
        let verdict = match &*block.language {
            "sh" => shell::check(block),
            "yaml" => match yaml::kind(block) {
                Ok(yaml::Kind::PartOfEnvoy) => {
                    parts.entry(&block.page).or_default().push(block);
                    Ok(())
                }
                Ok(kind) => yaml::check(block, kind),
                Err(error) => Err(error),
            },
            "json" => data::json(block),
            "toml" => ask_check("configuration.toml", &block.text),
            "python" => data::python(block),
            "mermaid" => data::mermaid(block),
            "text" => Ok(()),
            other => Err(format!("there is no rule for {other:?}; name a language")),
        };
        if let Err(error) = verdict {
            found.push(format!("{block}: {error}"));
        }
    }
    for (page, parts) in parts {
        if let Err(error) = envoy::check(&parts) {
            found.push(format!(
                "{page}, its parts of Envoy's configuration: {error}"
            ));
        }
    }
    found
}

/// Whether the sidecar takes a configuration in a file of this name.
fn ask_check(name: &str, text: &str) -> Result<(), String> {
    let program = fleet::sidecar_binary().unwrap_or_else(|error| panic!("{error}"));
    let program = program.display().to_string();
    let said = ask(&[&program, "check", "--config"], name, text)?;
    // It opens no way round a policy.
    match said.lines().find(|line| line.contains("but routes")) {
        Some(doubt) => Err(doubt.to_owned()),
        None => Ok(()),
    }
}

#[test]
fn every_block_is_run_or_read_by_who_would_read_it() {
    let _alone = ALONE.blocking_lock();
    let blocks = pages();
    assert!(blocks.len() > 30, "{}", blocks.len());
    let found = judge(&blocks);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let unused = shell::unused(&blocks);
    assert!(unused.is_empty(), "listed, but nowhere shown: {unused:?}");
}

#[test]
fn the_quick_start_works_word_for_word() {
    let _alone = ALONE.blocking_lock();
    let blocks = pages();
    let page: Vec<&Block> = blocks
        .iter()
        .filter(|block| block.page == QUICK_START)
        .collect();
    let _fleet = session::Fleet::none_yet();
    let told = session::run(&page, &[], &file(".")).unwrap_or_else(|error| panic!("{error}"));
    for wanted in ["x-rolter-decision: affinity", "x-rolter-cache: hit"] {
        assert!(told.contains(wanted), "no {wanted} in\n{told}");
    }
    // The second turn goes where the first one went.
    let targets = told
        .lines()
        .filter(|line| line.starts_with("x-rolter-target: "));
    let targets: BTreeSet<&str> = targets.collect();
    assert_eq!(targets.len(), 1, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_other_pages_work_on_a_running_fleet() {
    let _alone = ALONE.lock().await;
    let free = TcpListener::bind("127.0.0.1:0");
    let metrics = free.and_then(|port| port.local_addr()).unwrap();
    let fleet = start(setup(2, 1).watched().configure(move |config| {
        config["routes"][0]["cache"] = serde_json::json!({"scope": "route"});
        config["sidecar"]["metrics_listen"] = serde_json::json!(metrics);
    }))
    .await;
    let admin = format!("http://{}", fleet.admin());
    let environment = [
        ("URL", fleet.url("")),
        ("ADMIN", admin),
        ("SIDECAR", format!("http://{metrics}")),
    ];
    let blocks = pages();
    let names: BTreeSet<&str> = blocks.iter().map(|block| &*block.page).collect();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| *name != QUICK_START) {
        let page: Vec<&Block> = blocks.iter().filter(|block| block.page == name).collect();
        let desk = session::desk(&page);
        if let Err(error) = session::run(&page, &environment, desk.path()) {
            found.push(error);
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_link_leads_somewhere() {
    let mut found = Vec::new();
    for page in blocks::names() {
        let text = read(&page);
        let folder = Path::new(&page).parent().unwrap();
        for target in blocks::links(&text) {
            if target.contains("://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let whole = match path {
                "" => PathBuf::from(&page),
                path => folder.join(path),
            };
            let there = file(&whole.display().to_string());
            if !there.exists() {
                found.push(format!("{page}: {target}"));
            } else if !anchor.is_empty() {
                let anchors = blocks::anchors(&fs::read_to_string(there).unwrap());
                if !anchors.iter().any(|known| known == anchor) {
                    found.push(format!("{page}: {target} is no heading there"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_reference_of_the_configuration_is_up_to_date() {
    let script = file("docs/reference.py");
    let output = Command::new("python3").arg(script).arg("--check").output();
    said(&output.unwrap()).unwrap_or_else(|error| panic!("{error}"));
}

/// Each of these, put into a page, is found.
#[test]
fn what_is_wrong_with_a_block_is_found() {
    let _alone = ALONE.blocking_lock();
    let wrong = [
        ("", "no language"),
        ("ruby", "puts 'no rule'"),
        ("sh", "for i in 1 2; do echo $i"),
        ("sh", "make no-such-target"),
        (
            "sh",
            "helm -n llm upgrade rolter envoy/chart --valus values.yaml",
        ),
        ("yaml", "# values: a.yaml\nmode: envoy\nreplicas: 3"),
        (
            "sh",
            "sudo rolter-sidecar frob --envoy-config /etc/envoy.yaml # needs kubectl",
        ),
        ("yaml", "providers: ["),
        ("yaml", "what: [is, this]"),
        (
            "yaml",
            "providers: [{ name: a, cluster: a }]\nroutes: [{ name: chat, target: [a] }]",
        ),
        ("yaml", "routes: [{ name: chat, targets: [nobody] }]"),
        ("yaml", "cache_aware: { threshold: 1.5 }"),
        ("yaml", "kv_events: { endpoint: \"10.0.0.1:5557\" }"),
        (
            "yaml",
            "- name: rolter\n  typed_config: { \"@type\": nothing }",
        ),
        (
            "yaml",
            "- { name: a, type: STATIC, connect_timeout: soon, load_assignment: {} }",
        ),
        (
            "yaml",
            "routes:\n  - { match: { prefix: / }, route: { clusterheader: x } }",
        ),
        ("yaml", "static_resources: { listeners: 3 }"),
        (
            "yaml",
            "groups: [{ name: a, rules: [{ alert: A, expr: rolter_no_such_metric > 0 }] }]",
        ),
        (
            "yaml",
            "kind: Deployment\napiVersion: apps/v1\n---\nkind: Service",
        ),
        ("json", "{\"error\": "),
        ("json", "{\"what\": \"is this\"}"),
        (
            "json",
            "{\"time\": \"now\", \"route\": \"chat\", \"because\": \"no such field\"}",
        ),
        ("toml", "[sidecar]\ncluster = 3"),
        ("python", "def broken(:"),
        ("mermaid", "nonsense"),
    ];
    for (language, text) in wrong {
        let block = Block::planted(language, text);
        assert!(!judge(&[block]).is_empty(), "not found: {text}");
    }
    let pair = |command: &str, output: &str| {
        [
            Block::planted("sh", command),
            Block::planted("text", output),
        ]
    };
    let run = |[command, output]: [Block; 2]| session::run(&[&command, &output], &[], &file("."));
    assert!(run(pair("echo one", "one")).is_ok());
    assert!(run(pair("echo 127.0.0.1:8080 ok", "127.0.0.1:… ok")).is_ok());
    let beside = "kubectl get pods \\\n  --watch\necho one";
    assert!(run(pair(beside, "one")).is_ok());
    let rendered = "helm upgrade --install a envoy/chart --set replicas=3";
    assert!(run(pair(rendered, "  replicas: 3")).is_ok());
    for (command, output) in [
        (
            "echo x-rolter-decision: miss",
            "x-rolter-decision: affinity",
        ),
        ("echo two; echo one", "one\ntwo"),
        ("echo one; false", "one"),
        ("false | cat; echo $NO_SUCH_VARIABLE", ""),
        ("kubectl get pods |\n  grep a\nfalse", ""),
        ("helm template rolter envoy/chart --set mode=none", ""),
    ] {
        assert!(run(pair(command, output)).is_err(), "not found: {command}");
    }
}
