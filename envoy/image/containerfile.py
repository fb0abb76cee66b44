"""Reads the few instructions of Containerfiles that the images of this project need.

What it does not know is an error, so an image never lacks what its Containerfile says.
"""

import json
import re
import shlex
from dataclasses import dataclass, field


class Refused(Exception):
    """A Containerfile that says what is not known here."""


@dataclass
class Image:
    """What a Containerfile says: its files, as (source, target, mode), one layer each, and the rest."""

    files: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)
    user: str = ""
    ports: list = field(default_factory=list)
    entrypoint: list = field(default_factory=list)


def read(text, arguments):
    """The image of a Containerfile, with values for its ARGs."""
    image, known, begun = Image(), {}, False
    for number, line in _lines(text):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        try:
            if not begun:
                if (word, rest) != ("FROM", "scratch"):
                    raise Refused("write FROM scratch first")
                begun = True
            elif word == "ARG":
                known[rest] = arguments.get(rest, "")
            elif word == "LABEL":
                for pair in shlex.split(rest):
                    name, _, value = pair.partition("=")
                    # A label without a value says nothing.
                    if value := _filled(value, known):
                        image.labels[name] = value
            elif word == "COPY":
                mode, source, target = rest.split()
                if not re.fullmatch(r"--chmod=0[0-7]{3}", mode) or not target.startswith("/"):
                    raise ValueError
                image.files.append((source, target, int(mode[len("--chmod="):], 8)))
            elif word == "USER":
                image.user = rest
            elif word == "EXPOSE":
                image.ports.append(f"{int(rest)}/tcp")
            elif word == "ENTRYPOINT":
                image.entrypoint = json.loads(rest)
            else:
                raise Refused(f"{word} is not known here")
        except Refused as error:
            raise Refused(f"line {number}: {error}") from None
        except ValueError:
            form = {
                "COPY": "COPY --chmod=0644 FILE /PATH",
                "EXPOSE": "EXPOSE PORT",
                "ENTRYPOINT": 'ENTRYPOINT ["/PATH"]',
            }.get(word, f'{word} NAME="VALUE"')
            raise Refused(f"line {number}: write {form}") from None
    if not begun:
        raise Refused("write FROM scratch first")
    unknown = sorted(arguments.keys() - known.keys())
    if unknown:
        raise Refused(f"there is no ARG {', '.join(unknown)}")
    return image


def _lines(text):
    """Instructions with the number of their first line: without comments, continued lines as one."""
    instruction, begin = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if not instruction:
            begin = number
        instruction += line.removesuffix("\\")
        if not line.endswith("\\"):
            yield begin, instruction
            instruction = ""
    if instruction:
        yield begin, instruction


def _filled(value, known):
    def fill(match):
        if match[1] not in known:
            raise Refused(f"there is no ARG {match[1]}")
        return known[match[1]]

    return re.sub(r"\$\{(\w+)\}", fill, value)
