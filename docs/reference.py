#!/usr/bin/env python3
"""Writes configuration.md, the reference of the configuration, from rolter.schema.json.

    docs/reference.py            writes it
    docs/reference.py --check    fails where what is there is not what would be written
"""

import difflib
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
SCHEMA = FOLDER / "rolter.schema.json"
PAGE = FOLDER / "configuration.md"

INTRODUCTION = """\
# Configuration

One document configures the filter and the sidecar. Envoy hands it to the filter as the plugin's `configuration`, and the sidecar reads the same one, out of Envoy's file (`--envoy-config envoy.yaml`) or from a file of its own (`--config rolter.yaml`, or `.toml`, or `.json`). This page lists every key. It is generated from [`rolter.schema.json`](rolter.schema.json) by `make docs`; edit that.

What the strategies do with their options is in [how a decision is made](decisions.md), [exact routing](exact-routing.md), [the response cache](response-cache.md) and [the policy](policy.md). Complete Envoy files are [`envoy.yaml`](../envoy/envoy.yaml), [`pool.yaml`](../envoy/pool.yaml) and [`policy.yaml`](../envoy/policy.yaml).

This is the smallest document that works:

```yaml
providers:
  - { name: a, cluster: vllm-a }
  - { name: b, cluster: vllm-b }
routes:
  - { name: chat, targets: [a, b] }
```

**Mistakes** are found before anything is used. An unknown key, a value out of bounds and a name that nothing has are errors, all reported at once, each with its path and what to write instead: `routes[0].cache.ttl_secs: 0; write a whole number from 1 to 2592000`. `rolter-sidecar check` and `envoy --mode validate` tell them. An Envoy that gets a bad configuration while it runs refuses it, and keeps the old one.

**Secrets** are never in the document. Where one is needed, a key that ends in `_env` names a variable of the sidecar's environment.

**Editors** that know the YAML language server (VS Code with its YAML extension, Neovim, IntelliJ) complete and check the document where its first line names the schema, by a path or a URL:

```yaml
# yaml-language-server: $schema=./docs/rolter.schema.json
sidecar: { cluster: rolter_sidecar }
providers:
  - { name: a, cluster: vllm-a }
routes:
  - { name: chat, targets: [a] }
```

That works for a file that holds this document and nothing else. Within Envoy's file the editor does not know where it begins; there `rolter-sidecar check --envoy-config envoy.yaml` is the check. The schema is stricter than the reader in two points that only programs need: the reader takes `null` as if the key were not there, and a fraction as a text (`"0.5"`), since Envoy hands it over so. What concerns several values at once, such as a target that no provider has, the schema cannot say.

In the tables, *required* keys have no default. `[]` in a path stands for each element of a list.
"""


class Node:
    """A part of the schema, with what it refers to."""

    def __init__(self, schema, written):
        self.schema = schema
        self.parts = [written]
        while "$ref" in self.parts[-1]:
            name = self.parts[-1]["$ref"].removeprefix("#/$defs/")
            self.parts.append(schema["$defs"][name])

    def get(self, keyword, default=None):
        return next((part[keyword] for part in self.parts if keyword in part), default)

    def properties(self):
        own = self.get("properties", {})
        return {key: Node(self.schema, written) for key, written in own.items()}

    def items(self):
        return Node(self.schema, self.get("items")) if self.get("items") else None


def flow(value):
    """A value as it is written in YAML."""
    if isinstance(value, list):
        return "[" + ", ".join(flow(element) for element in value) + "]"
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        odd = value[:1] in "[*&!{%@`#\"'" or ": " in value or value.endswith(":")
        return json.dumps(value, ensure_ascii=False) if odd else value
    return json.dumps(value)


def kind(node):
    if node.get("enum"):
        return "choice"
    items = node.items()
    if items:
        return f"list of {plural(items)}"
    names = {"integer": "whole number", "string": "text", "boolean": "true or false"}
    return names.get(node.get("type"), node.get("type"))


def plural(node):
    if node.get("enum"):
        return "choices"
    return {"string": "texts", "object": "objects"}[node.get("type")]


def number(value):
    return f"{value:,}".replace(",", " ") if isinstance(value, int) and value >= 100_000 else str(value)


def bounds(node):
    said = []
    choices = node.get("enum") or (node.items() and node.items().get("enum"))
    if choices:
        said.append(", ".join(f"`{choice}`" for choice in choices))
    if node.get("minimum") is not None:
        said.append(f"{number(node.get('minimum'))} to {number(node.get('maximum'))}")
    if node.get("maxLength"):
        said.append(f"up to {node.get('maxLength')} characters")
    if node.get("minItems") and node.get("maxItems"):
        said.append(f"{node.get('minItems')} to {node.get('maxItems')}")
    elif node.get("minItems"):
        said.append(f"{node.get('minItems')} at least")
    return "; ".join(said)


def default(node, required):
    if required:
        return "*required*"
    if node.get("default") is not None:
        value = node.get("default")
        return "none" if value == [] else f"`{flow(value)}`"
    return node.get("x-default", "as below" if node.get("properties") else "")


def example(node):
    examples = node.get("examples", [])
    return ", ".join(f"`{flow(value)}`" for value in examples if len(flow(value)) < 60)


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def sections(node, path, title, seen):
    """The table of an object, then those of the objects in it."""
    required = node.get("required", [])
    rows = []
    below = []
    for key, child in node.properties().items():
        inner = child if child.get("properties") else child.items()
        if inner and inner.get("properties"):
            name = f"{path}{key}" + ("[]" if child.items() else "")
            below.append((inner, name, child))
        rows.append([
            f"`{key}`",
            kind(child),
            default(child, key in required),
            bounds(child),
            child.get("description"),
            example(child),
        ])
    yield title, rows
    for inner, name, child in below:
        known = json.dumps(inner.parts[-1], sort_keys=True)
        if known in seen:
            yield f"`{name}`", f"As [`{seen[known]}`](#{anchor(seen[known])})."
            continue
        seen[known] = name
        yield from sections(inner, f"{name}.", f"`{name}`", seen)


def anchor(name):
    return "".join(char for char in name.lower() if char.isalnum() or char in "_-")


def page(schema):
    text = [INTRODUCTION]
    for title, rows in sections(Node(schema, schema), "", "The document", {}):
        text.append(f"## {title}\n")
        if isinstance(rows, str):
            text.append(rows + "\n")
            continue
        table = ["| key | type | default | bounds | meaning | example |", "|---|---|---|---|---|---|"]
        table += ["| " + " | ".join(cell(column) for column in row) + " |" for row in rows]
        text.append("\n".join(table) + "\n")
    return "\n".join(text)


def main():
    written = page(json.loads(SCHEMA.read_text(encoding="utf-8")))
    if "--check" in sys.argv[1:]:
        there = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if there != written:
            lines = [text.splitlines(keepends=True) for text in (there, written)]
            difference = difflib.unified_diff(*lines, "docs/configuration.md", "what the schema says")
            sys.stderr.writelines(difference)
            sys.exit("docs/configuration.md is not up to date; run make docs")
        return
    PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
