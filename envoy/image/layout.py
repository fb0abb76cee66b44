#!/usr/bin/env python3
"""Writes the image of a Containerfile as an OCI image layout, and a tar archive of it beside.

The same input yields the same bytes: nothing depends on the clock, the user, umask or the order of a
directory. One COPY is one layer, as builders do it.
"""

import argparse
import gzip
import hashlib
import io
import json
import pathlib
import shutil
import sys
import tarfile
from datetime import datetime, timezone

import containerfile

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def main():
    arguments = _arguments()
    try:
        text = arguments.containerfile.read_text()
        values = dict(pair.split("=", 1) for pair in arguments.build_arg)
        image = containerfile.read(text, values)
        tars = [layer(arguments.context / source, target, mode) for source, target, mode in image.files]
    except (containerfile.Refused, OSError) as error:
        sys.exit(f"{arguments.containerfile}: {error}")
    if arguments.output.exists():
        shutil.rmtree(arguments.output)
    layout = Layout(arguments.output)
    digest = layout.write(image, tars, arguments)
    archive(arguments.output)
    print(digest)


class Layout:
    """A layout that is being written: blobs by their digests."""

    def __init__(self, root):
        self.root = root
        self.blobs = root / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)

    def write(self, image, tars, arguments):
        """Writes an image with these layers, and gives the digest of its manifest."""
        created = datetime.fromtimestamp(arguments.created, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        layers, diffs, history = [], [], []
        for (source, target, _), tar in zip(image.files, tars):
            layers.append(self.blob(gzip.compress(tar, 9, mtime=0), LAYER))
            diffs.append(_digest(tar))
            history.append({"created": created, "created_by": f"COPY {source} {target}"})
        system, architecture = arguments.platform.split("/")
        run = {
            "User": image.user,
            "ExposedPorts": {port: {} for port in image.ports},
            "Entrypoint": image.entrypoint,
            "WorkingDir": "/",
            "Labels": image.labels,
        }
        config = {
            "created": created,
            "architecture": architecture,
            "os": system,
            "config": {name: value for name, value in run.items() if value},
            "rootfs": {"type": "layers", "diff_ids": diffs},
            "history": history,
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.blob(_json(config), CONFIG),
            "layers": layers,
            "annotations": {**image.labels, "org.opencontainers.image.created": created},
        }
        described = self.blob(_json(manifest), MANIFEST)
        # The tag for tools that read layouts; the full name for containerd, which imports by it.
        named = {
            "io.containerd.image.name": f"{arguments.name}:{arguments.tag}",
            "org.opencontainers.image.ref.name": arguments.tag,
        }
        index = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{**described, "annotations": named}],
        }
        (self.root / "index.json").write_bytes(_json(index))
        (self.root / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
        return described["digest"]

    def blob(self, content, media_type):
        """Keeps a blob, and gives its descriptor."""
        digest = _digest(content)
        (self.blobs / digest.removeprefix("sha256:")).write_bytes(content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}


def layer(source, target, mode):
    """The uncompressed layer with one file, and the directories that it is in."""
    content = source.read_bytes()
    path = pathlib.PurePosixPath(target).relative_to("/")
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for directory in reversed(path.parents[:-1]):
            entry = tarfile.TarInfo(f"{directory}/")
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        entry = tarfile.TarInfo(str(path))
        entry.size, entry.mode = len(content), mode
        tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def archive(root):
    """A tar archive of a layout, beside it."""
    with tarfile.open(f"{root}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            entry = tarfile.TarInfo(str(path.relative_to(root)))
            if path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                content = path.read_bytes()
                entry.size, entry.mode = len(content), 0o644
                tar.addfile(entry, io.BytesIO(content))


def _json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _arguments():
    parser = argparse.ArgumentParser(description="Writes an OCI image layout, and prints the digest of its manifest.")
    parser.add_argument("--containerfile", type=pathlib.Path, required=True)
    parser.add_argument("--context", type=pathlib.Path, required=True, help="the directory that COPY copies from")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the layout; replaced where there is one")
    parser.add_argument("--name", required=True, help="the image's name with its registry, without a tag")
    parser.add_argument("--tag", required=True)
    parser.add_argument("--platform", default="linux/amd64")
    parser.add_argument("--created", type=int, default=0, help="when, in seconds since 1970")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
