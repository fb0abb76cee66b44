//! On what, and of what, it was measured.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::available_parallelism;

/// The machine, the versions and the command.
pub(super) fn describe() -> String {
    let lines = [
        ("machine", machine()),
        ("Envoy", envoy()),
        (
            "sglang-router",
            router("ROLTER_SGLANG_ROUTER", "sglang-router"),
        ),
        ("vllm-router", router("ROLTER_VLLM_ROUTER", "vllm-router")),
        ("this filter", filter()),
        ("command", command()),
    ];
    let rows = lines.map(|(what, is)| format!("| {what} | {is} |\n"));
    format!("| | |\n|---|---|\n{}", rows.concat())
}

fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = field(&cpus, "model name").unwrap_or("a processor of unknown kind");
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = field(&memory, "MemTotal").and_then(|total| total.split(' ').next()?.parse().ok());
    let gib = kib.map_or(0, |kib: u64| (kib + (1 << 19)) >> 20);
    let cores = available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{cores} cores of {model}, {gib} GiB of memory, Linux {}",
        kernel.trim()
    )
}

/// The first line of this name, as in `NAME : VALUE`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let named = |line: &'a str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    };
    text.lines().find_map(named)
}

fn envoy() -> String {
    let said = fleet::envoy_binary().map(|binary| output(Command::new(binary).arg("--version")));
    // version: COMMIT/VERSION/STATE/BUILD/TLS
    let version = said.ok().flatten().and_then(|said| {
        let (_, version) = said.split_once("version: ")?;
        Some(version.split('/').nth(1)?.to_owned())
    });
    version.unwrap_or_else(unknown)
}

/// Routers are installed into a folder that has the version in its name.
fn router(variable: &str, name: &str) -> String {
    let folder = std::env::var_os(variable).map_or_else(
        || {
            PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("../../.tools")
                .join(name)
        },
        PathBuf::from,
    );
    let folder = folder.canonicalize().ok();
    let folder = folder
        .as_deref()
        .and_then(|path| path.file_name()?.to_str());
    let version = folder.and_then(|folder| folder.strip_prefix(name)?.strip_prefix('-'));
    version.map_or_else(unknown, str::to_owned)
}

fn filter() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut git = Command::new("git");
    git.args([
        "-C",
        env!("CARGO_MANIFEST_DIR"),
        "describe",
        "--always",
        "--dirty",
    ]);
    output(&mut git).map_or_else(
        || version.to_owned(),
        |commit| format!("{version}, {commit}"),
    )
}

/// What `make` was told, where it was `make`.
fn command() -> String {
    let told = std::env::var("ROLTER_COMMAND").unwrap_or_default();
    if told.is_empty() {
        unknown()
    } else {
        format!("`{told}`")
    }
}

fn output(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned())
}

fn unknown() -> String {
    "unknown".to_owned()
}
