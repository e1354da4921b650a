"""Prints the files at a path into the log of a pod, in pieces with their place: see `volume_download`.

The pod runs this file with the image's Python, 3.9 or newer. Data before the given place is not printed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from collections.abc import Iterator

PIECE = 12_000
"""In bytes. As base64, it does not exceed the longest line that a container engine keeps in one piece."""


def main(path: str, first: int, offset: int) -> None:
    """Print the files from number ``first`` on, the first one from ``offset`` on."""
    names = [""] if os.path.isfile(path) else sorted(_below(path))
    for number, name in enumerate(names):
        if number >= first:
            file = os.path.join(path, name) if name else path
            _print_file(file, name, number, offset if number == first else 0)
    _print(files=len(names))


def _below(path: str) -> Iterator[str]:
    """The regular files below a folder; none if there is no folder."""
    for at, _, files in os.walk(path):
        for name in files:
            file = os.path.join(at, name)
            if os.path.isfile(file) and not os.path.islink(file):
                yield os.path.relpath(file, path)


def _print_file(path: str, name: str, number: int, offset: int) -> None:
    digest, at = hashlib.sha256(), 0
    with open(path, "rb") as file:
        for data in iter(lambda: file.read(PIECE), b""):
            digest.update(data)
            if at >= offset:
                _print(file=number, at=at, data=base64.b64encode(data).decode())
            at += len(data)
    _print(file=number, name=name, size=at, sha256=digest.hexdigest())


def _print(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
