#!/usr/bin/env python3
"""Writes what others have made of an artefact, with their licences and notices, and prints the licence of
the whole as an SPDX expression.

The same input yields the same bytes. Invariant: nothing is without a text, and a text is there once.
"""

import argparse
import html
import pathlib
import re
import subprocess
import sys

import built

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A file with a licence or a notice, or a folder of such, as crates call it.
TEXT = re.compile(r"\.?(licen[cs]es?|unlicense|copying|copyright|notice)([-._].*)?", re.IGNORECASE)
# Where there is a choice. With neither of them the first in the alphabet is taken.
PREFERRED = ["Apache-2.0", "MIT"]


class Refused(Exception):
    """What cannot be passed on as it is."""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--zig", type=pathlib.Path, required=True, help="the folder of Zig")
    parser.add_argument("--certificates", type=pathlib.Path, help="the folder of certifi, where they are shipped")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    target = arguments.target
    try:
        itself, crates = built.crates(ROOT, arguments.package, target)
        parts = [*map(crate, crates.values()), *standard_library(target), *libraries(target, arguments.zig)]
        if arguments.certificates:
            parts.append(certificates(arguments.certificates))
        parts = sorted((part for part in parts if part), key=lambda part: part[:2])
        licenses = set(chosen(itself["license"])).union(*(chosen(part[1]) for part in parts))
        arguments.output.write_text(document(arguments.package, parts), encoding="utf-8")
    except (Refused, OSError) as error:
        sys.exit(f"{arguments.package}: {error}")
    print(" AND ".join(sorted(licenses)))


def crate(package):
    """A crate: its name, its licence, and its texts by the names of their files. None of this project's."""
    if not package["source"]:
        return None
    root = pathlib.Path(package["manifest_path"]).parent
    return whole(f'{package["name"]} {package["version"]}', package["license"], read(root, texts(root)))


def standard_library(target):
    """The standard library of Rust, and those crates that it has for a target, as its toolchain tells."""
    docs = _rustc("sysroot") / "share/doc/rust"
    page = (docs / "COPYRIGHT-library.html").read_text(encoding="utf-8")
    libraries = _rustc("target-libdir", target).glob("lib*.rlib")
    built_in = {path.name.removeprefix("lib").rpartition("-")[0] for path in libraries}
    own, *crates = page.split("<h3>")
    licenses = [docs / f"licenses/{license}.txt" for license in ["Apache-2.0", "MIT", "Unicode-3.0"]]
    own = {"COPYRIGHT-library.html": plain(own[own.index("<h2") :]), **read(docs, licenses)}
    yield whole("Rust's standard library", "(Apache-2.0 OR MIT) AND Unicode-3.0", own)
    for entry in crates:
        name, version = re.match(r"\W*(.+?)-(\d.*?)</h3>", entry).groups()
        if name.replace("-", "_") in built_in:
            license = re.search(r"License:</b>([^<]*)</p>", entry)[1].strip()
            files = re.findall(r"<summary><code>(.*?)</code></summary>\s*<pre>(.*?)</pre>", entry, re.DOTALL)
            files = {file: html.unescape(text) for file, text in files}
            yield whole(f"{name} {version} of Rust's standard library", license, files)


def _rustc(printed, target=None):
    """A folder of the toolchain."""
    command = ["rustc", f"--print={printed}", *([f"--target={target}"] if target else [])]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return pathlib.Path(asked.stdout.strip())


def libraries(target, zig):
    """The C libraries that Rust's toolchain links for a target. It has no notices of them, but Zig has."""
    lib = zig / "lib"
    musl = whole("musl", "MIT", read(lib, [lib / "libc/musl/COPYRIGHT"]))
    if "musl" in target:
        unwind = read(lib, [lib / "libunwind/LICENSE.TXT"])
        return [musl, whole("LLVM's libunwind", "Apache-2.0 WITH LLVM-exception", unwind)]
    wasi = read(lib, texts(lib / "libc/wasi"))
    return [musl, whole("wasi-libc", "(Apache-2.0 OR MIT) AND BSD-2-Clause", wasi)]


def certificates(certifi):
    """The list of public authorities."""
    (info,) = certifi.glob("certifi-*.dist-info")
    return whole("certificates of Mozilla's list, by certifi", "MPL-2.0", read(info, [info / "licenses/LICENSE"]))


def texts(root):
    """The files with licences and notices in a folder."""
    for path in root.rglob("*"):
        is_text = any(map(TEXT.fullmatch, path.relative_to(root).parts))
        if is_text and path.is_file() and path.suffix not in [".rs", ".html"]:
            yield path


def read(root, files):
    """Files by their names below a folder."""
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8", errors="replace") for path in sorted(files)}


def whole(name, license, files):
    """A part, if it has all that it needs."""
    if not license or not files:
        raise Refused(f"{name} has no {'text of its licence' if license else 'licence'}")
    return name, license, files


def chosen(expression):
    """The licences of an SPDX expression, with a choice made where there is one."""
    taken = []
    terms = re.sub(r"\s*/\s*", " OR ", expression).split(" AND ")
    for term in terms:
        inner = term.removeprefix("(").removesuffix(")")
        if re.search(r"[()]", inner) or (" OR " in inner and inner == term and len(terms) > 1):
            raise Refused(f"{expression} is more than is known here")
        offered = sorted(inner.split(" OR "))
        taken.append(next((license for license in PREFERRED if license in offered), offered[0]))
    return taken


def document(package, parts):
    """The list of the parts, and each text once with those that have it."""
    known = {}
    for name, _, files in parts:
        for file, text in files.items():
            # They differ in how they are broken into lines.
            users, _ = known.setdefault(" ".join(text.split()), ([], text))
            users.append(f"{name}: {file}")
    lines = [f"{package} has parts that others have made. Their licences and notices follow the list.", ""]
    lines += [f"{name}: {license}" for name, license, _ in parts]
    for users, text in known.values():
        lines += ["", "=" * 80, *users, "-" * 80, text.strip("\n").expandtabs(4)]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def plain(page):
    """The words of a page."""
    text = html.unescape(re.sub(r"<style.*?</style>|<[^>]*>", "", page, flags=re.DOTALL))
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


if __name__ == "__main__":
    main()
