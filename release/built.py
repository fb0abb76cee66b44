"""The crates that an artefact is built of.

They are those that cargo says it has compiled for the artefact's target: neither what only a build or a
test runs, nor what other targets or features would need.
"""

import json
import subprocess


def crates(root, package, target):
    """The package itself, and the others by their ids, each as cargo's metadata has it with its `deps`."""
    metadata = json.loads(_cargo(root, "metadata", "--format-version=1", "--locked", f"--filter-platform={target}"))
    compiled = _compiled(root, package, target)
    found = {known["id"]: known for known in metadata["packages"] if known["id"] in compiled}
    for node in metadata["resolve"]["nodes"]:
        if node["id"] in found:
            found[node["id"]]["deps"] = sorted(dep["pkg"] for dep in node["deps"] if dep["pkg"] in compiled)
    # A crate of the workspace has no source; others may have its name.
    (itself,) = (known for known in found.values() if known["name"] == package and not known["source"])
    del found[itself["id"]]
    return itself, found


def _compiled(root, package, target):
    """The packages whose libraries or program the build has put among those of the target."""
    options = ["--quiet", "--release", "--locked", "--message-format=json"]
    messages = _cargo(root, "build", *options, f"--package={package}", f"--target={target}")
    found = set()
    for message in map(json.loads, messages.splitlines()):
        if message["reason"] == "compiler-artifact" and any(f"/{target}/" in name for name in message["filenames"]):
            found.add(message["package_id"])
    return found


def _cargo(root, *arguments):
    command = ["cargo", *arguments]
    return subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout
