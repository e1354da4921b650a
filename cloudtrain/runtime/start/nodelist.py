"""Expands Slurm's lists of nodes: ``node[01-03,7],login`` is node01, node02, node03, node7 and login."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from cloudtrain.contract.documents import MOST_HOSTS

_PART = re.compile(r"([^\[\],]*)(?:\[([0-9,-]+)\])?")


def expand_nodelist(text: str) -> list[str]:
    """The nodes in the order of the list, as ``scontrol show hostnames`` prints them.

    Raises ValueError if ``text`` is not such a list.
    """
    names = list(itertools.islice(_names(text), MOST_HOSTS + 1))
    if not names or len(names) > MOST_HOSTS:
        raise ValueError(f"{text[:100]!r} is not a list of nodes")
    return names


def _names(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        choices: list[list[str]] = []
        while position < len(text) and text[position] != ",":
            found = _PART.match(text, position)
            if not found or found.end() == position:
                raise ValueError(f"{text[:100]!r} is not a list of nodes")
            choices.append([found[1]])
            if found[2]:
                choices.append(list(_numbers(found[2])))
            position = found.end()
        if not choices:
            raise ValueError(f"{text[:100]!r} is not a list of nodes")
        for parts in itertools.product(*choices):
            yield "".join(parts)
        position += 1


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or (part.endswith("-")):
            raise ValueError(f"{text[:100]!r} is not a list of numbers")
        stop = int(last or first)
        if stop - int(first) > MOST_HOSTS:
            raise ValueError(f"{text[:100]!r} has too many numbers")
        for number in range(int(first), stop + 1):
            yield str(number).zfill(len(first))
