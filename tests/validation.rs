//! Configurations as Envoy itself judges them.

use fleet::{envoy_binary, module};
use std::fs;
use std::process::{Command, Output};

/// Runs `envoy --mode validate` on this text, with the module where it was built.
///
/// # Panics
/// Where it cannot be run.
pub fn validate(yaml: &str) -> Output {
    let run = || {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("envoy.yaml");
        let module = module()?.display().to_string();
        fs::write(
            &file,
            yaml.replace("/etc/rolter/rolter_filter.wasm", &module),
        )?;
        Command::new(envoy_binary()?)
            .args(["--mode", "validate", "--use-dynamic-base-id", "-c"])
            .arg(&file)
            .output()
    };
    run().unwrap_or_else(|error| panic!("{error}"))
}

/// What it says.
pub fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
