//! What `release/check.py` lets pass as a release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const CHANGELOG: &str = "# Changelog\n\n## [1.2.3] - 2026-01-01\n\n### Added\n\n- Something.\n";

/// A project of one crate, committed.
struct Project(TempDir);

impl Project {
    fn new() -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        project.write(
            "Cargo.toml",
            "[workspace]\nmembers = [\"a\"]\n[workspace.package]\nversion = \"1.2.3\"\n",
        );
        project.write(
            "Cargo.lock",
            "version = 4\n[[package]]\nname = \"a\"\nversion = \"1.2.3\"\n",
        );
        project.write(
            "a/Cargo.toml",
            "[package]\nname = \"a\"\nversion.workspace = true\n",
        );
        project.write("CHANGELOG.md", CHANGELOG);
        project.write(
            "envoy/chart/Chart.yaml",
            "name: a\nversion: 1.2.3\nappVersion: \"1.2.3\" # as in Cargo.toml\n",
        );
        project.git(&["init", "--quiet"]);
        project.commit();
        project
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(&self.0);
        git.args(["-c", "user.name=test", "-c", "user.email=test@localhost"]);
        git.args(["-c", "commit.gpgsign=false"]);
        assert!(git.args(arguments).status().unwrap().success());
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message=All"]);
    }

    fn check(&self) -> Vec<String> {
        check(self.0.path(), &["--committed"])
    }
}

/// What stands in the way of a release.
fn check(root: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("python3");
    command
        .arg("-B")
        .arg(root_of_all().join("release/check.py"));
    command.arg("--root").arg(root).args(arguments);
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.success(), told.is_empty(), "{told}");
    told.lines().map(ToOwned::to_owned).collect()
}

fn root_of_all() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn all_parts_of_this_project_have_one_version_and_the_changelog_has_it() {
    assert_eq!(check(&root_of_all(), &[]), [""; 0]);
}

#[test]
fn a_project_with_one_version_that_is_committed_can_be_released() {
    assert_eq!(Project::new().check(), [""; 0]);
}

#[test]
fn what_is_not_committed_is_not_released() {
    for name in ["Cargo.toml", "new"] {
        let project = Project::new();
        let path = project.0.path().join(name);
        let had = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, had + "\n").unwrap();
        let told = project.check();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("commit first"), "{told:?}");
        assert!(told[1].ends_with(name), "{told:?}");
        assert_eq!(check(project.0.path(), &[]), [""; 0]);
    }
}

#[test]
fn a_version_that_the_changelog_does_not_have_is_not_released() {
    for changelog in [
        "",
        "## [1.2.4] - 2026-01-01\n\n- Something.\n",
        "## [Unreleased]\n\n- Something.\n",
        "## [1.2.3]\n\n- Something.\n",
        "## [1.2.3] - 2026-01-01\n\n## [1.2.2] - 2025-01-01\n\n- Something.\n",
        "## [1.2.3] - 2026-01-01\n",
    ] {
        let project = Project::new();
        project.write("CHANGELOG.md", changelog);
        project.commit();
        let told = project.check();
        let wanted = "CHANGELOG.md: write ## [1.2.3] - YYYY-MM-DD, and what it brings";
        assert_eq!(told, [wanted], "{changelog}");
    }
}

#[test]
fn a_part_with_another_version_is_named() {
    for (name, content, wanted) in [
        (
            "Cargo.lock",
            "version = 4\n[[package]]\nname = \"a\"\nversion = \"1.2.2\"\n",
            "Cargo.lock: a has version 1.2.2: run cargo update --workspace",
        ),
        (
            "a/Cargo.toml",
            "[package]\nname = \"a\"\nversion = \"1.2.3\"\n",
            "a/Cargo.toml: write version.workspace = true",
        ),
        (
            "envoy/chart/Chart.yaml",
            "version: 1.2.3\nappVersion: 1.2.30\n",
            "envoy/chart/Chart.yaml: write appVersion: \"1.2.3\"",
        ),
        (
            "envoy/chart/Chart.yaml",
            "appVersion: 1.2.3\n",
            "envoy/chart/Chart.yaml: write version: \"1.2.3\"",
        ),
    ] {
        let project = Project::new();
        project.write(name, content);
        project.commit();
        assert_eq!(project.check(), [wanted]);
    }
}
