#!/usr/bin/env python3
"""Packs what `make image` has built into target/release-VERSION, with what is in it and checksums.

The same input yields the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import tarfile

import sbom

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULE = "wasm32-wasip1"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--target", required=True, help="of the sidecar")
    parser.add_argument("--arch", required=True, help="the same as images name it")
    arguments = parser.parse_args()
    version, arch = arguments.version, arguments.arch
    images = ROOT / "target/image"
    module, sidecar = images / "context/plugin.wasm", images / "context/rolter-sidecar"
    packed = ROOT / f"target/release-{version}"
    if packed.exists():
        shutil.rmtree(packed)
    packed.mkdir(parents=True)

    shutil.copy(module, packed / f"rolter-filter-{version}.wasm")
    shutil.copy(sidecar, packed / f"rolter-sidecar-{version}-linux-{arch}")
    shutil.copy(f"{images}/rolter-filter.tar", packed / f"rolter-filter-{version}.oci.tar")
    shutil.copy(f"{images}/rolter-sidecar.tar", packed / f"rolter-sidecar-{version}-linux-{arch}.oci.tar")
    for name, package, target, artefact in [
        (f"rolter-filter-{version}", "rolter-filter", MODULE, module),
        (f"rolter-sidecar-{version}-linux-{arch}", "rolter-sidecar", arguments.target, sidecar),
    ]:
        part = package.removeprefix("rolter-")
        shutil.copy(images / f"context/third-party-{part}.txt", packed / f"{name}.third-party.txt")
        listed = sbom.document(ROOT, package, target, artefact)
        (packed / f"{name}.cdx.json").write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n")
    (packed / "images.txt").write_text("".join(map(named, [images / "rolter-filter", images / "rolter-sidecar"])))
    for name in ["LICENSE", "CHANGELOG.md", "docs/rolter.schema.json"]:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, packed)
    if (ROOT / "envoy/chart/Chart.yaml").exists():
        chart(ROOT / "envoy/chart", packed)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(packed.iterdir())]
    (packed / "SHA256SUMS").write_text("".join(sums))
    for path in sorted(packed.iterdir()):
        path.chmod(0o755 if path.name.endswith(f"-linux-{arch}") else 0o644)
        print(path.relative_to(ROOT))


def named(layout):
    """A line with the name of an image and the digest of its manifest."""
    (described,) = json.loads((layout / "index.json").read_text())["manifests"]
    return f'{layout.name}:{described["annotations"]["org.opencontainers.image.ref.name"]}  {described["digest"]}\n'


def chart(source, packed):
    """The chart as `helm package` packs it: all its files in a folder of its name."""
    said = dict(re.findall(r"^(name|version):\s*[\"']?([^\"'\s#]+)", (source / "Chart.yaml").read_text(), re.MULTILINE))
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=source, capture_output=True, text=True, check=True).stdout.splitlines()
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            content = (source / name).read_bytes()
            entry = tarfile.TarInfo(f'{said["name"]}/{name}')
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    archive = packed / f'{said["name"]}-{said["version"]}.tgz'
    archive.write_bytes(gzip.compress(written.getvalue(), 9, mtime=0))


if __name__ == "__main__":
    main()
