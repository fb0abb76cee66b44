#!/usr/bin/env python3
"""Tells what stands in the way of a release: parts that disagree about the version, a changelog
without it, and with --committed changes that no commit has."""

import argparse
import pathlib
import re
import subprocess
import sys
import tomllib


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    parser.add_argument("--committed", action="store_true", help="refuse what is not committed")
    arguments = parser.parse_args()
    root = arguments.root
    version = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    wrong = [*disagreements(root, version), *unsaid(root, version)]
    if arguments.committed:
        wrong += uncommitted(root)
    for complaint in wrong:
        print(complaint, file=sys.stderr)
    sys.exit(1 if wrong else 0)


def disagreements(root, version):
    """Files that have another version than the workspace."""
    lock = tomllib.loads((root / "Cargo.lock").read_text())
    for package in lock["package"]:
        # What has no source is a part of the workspace.
        if "source" not in package and package["version"] != version:
            yield f'Cargo.lock: {package["name"]} has version {package["version"]}: run cargo update --workspace'
    for manifest in sorted(root.glob("*/Cargo.toml")) + sorted(root.glob("examples/*/Cargo.toml")):
        package = tomllib.loads(manifest.read_text()).get("package", {})
        if package.get("version") != {"workspace": True}:
            yield f"{manifest.relative_to(root)}: write version.workspace = true"
    chart = root / "envoy/chart/Chart.yaml"
    if chart.exists():
        for key in ["version", "appVersion"]:
            said = re.search(rf'^{key}:\s*["\']?([^"\'\s#]+)', chart.read_text(), re.MULTILINE)
            if not said or said[1] != version:
                yield f'{chart.relative_to(root)}: write {key}: "{version}"'


def unsaid(root, version):
    """A changelog that does not say what the version brings."""
    path = root / "CHANGELOG.md"
    text = path.read_text() if path.exists() else ""
    heading = re.compile(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n+(?!## )\S", re.MULTILINE)
    if not heading.search(text):
        yield f"CHANGELOG.md: write ## [{version}] - YYYY-MM-DD, and what it brings"


def uncommitted(root):
    """Changes in the work tree."""
    status = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=False)
    if status.returncode != 0:
        yield f"a release is made of a commit: {status.stderr.strip()}"
    elif status.stdout:
        yield "commit first, or write TRIAL=1 to see what would come out:\n" + status.stdout.rstrip()


if __name__ == "__main__":
    main()
