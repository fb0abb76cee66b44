"""What is in an artefact, as a CycloneDX document.

Invariant: a checksum or an address of the registry is only where the crate is from there. This project's
crates have neither, and a stranger of the same name is another component.
"""

import hashlib
import re
import subprocess
import tomllib

import built


def document(root, package, target, artefact):
    """The document of a package that is built for a target, and has become this artefact."""
    itself, others = built.crates(root, package, target)
    lock = tomllib.loads((root / "Cargo.lock").read_text())
    checksums = {_key(known): known.get("checksum") for known in lock["package"]}
    every = {**others, itself["id"]: itself}
    subject = {
        **_component(itself, checksums),
        "type": "application",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(artefact.read_bytes()).hexdigest()}],
    }
    components = [_component(known, checksums) for known in others.values()]
    dependencies = [
        {"ref": _ref(known), "dependsOn": sorted(_ref(every[other]) for other in known["deps"])}
        for known in every.values()
    ]
    toolchain = subprocess.run(["rustc", "--version"], cwd=root, capture_output=True, text=True, check=True)
    properties = [
        {"name": "rust:target", "value": target},
        {"name": "rust:toolchain", "value": toolchain.stdout.strip()},
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": subject, "properties": properties},
        "components": sorted(components, key=lambda component: component["bom-ref"]),
        "dependencies": sorted(dependencies, key=lambda dependency: dependency["ref"]),
    }


def _component(package, checksums):
    component = {
        "type": "library",
        "bom-ref": _ref(package),
        "name": package["name"],
        "version": package["version"],
    }
    if package["source"]:
        component["purl"] = _ref(package)
    if package["license"]:
        # Crates of old have `MIT/Apache-2.0`.
        component["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
    if checksum := checksums.get(_key(package)):
        component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return component


def _key(package):
    """What tells packages apart: those of other sources may have the same name and version."""
    return package["name"], package["version"], package.get("source")


def _ref(package):
    """What a component goes by in the document: its address in the registry, if it is from there."""
    name, version = package["name"], package["version"]
    return f'pkg:cargo/{name}@{version.replace("+", "%2B")}' if package["source"] else f"{name}@{version}"
