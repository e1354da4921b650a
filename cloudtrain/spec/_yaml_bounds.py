"""Bounds of YAML documents, checked before anything is built: a few lines with aliases can mean billions of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from cloudtrain.spec.bounds import DEEPEST, MOST_CHARACTERS, MOST_VALUES, REDUCE

_REPEAT = "Write the values without aliases (*name), or repeat fewer of them."


class OutOfBounds(yaml.MarkedYAMLError):
    """The document is too large. ``note`` is the hint."""


@dataclass
class _Node:
    """A value whose content is being read, or that an anchor names."""

    anchor: str | None
    values: int = 1
    characters: int = 0
    height: int = 0
    """The levels below it."""

    def add(self, child: _Node) -> None:
        self.values += child.values
        self.characters += child.characters
        self.height = max(self.height, child.height + 1)


def check_bounds(loader: Any) -> None:
    """Read the events of all documents of ``loader``. Raises OutOfBounds, or another yaml.YAMLError.

    This does not recurse. The size of a value with aliases is counted, not built.
    """
    anchors: dict[str, _Node] = {}
    open_nodes = [_Node(None)]
    while loader.check_event():
        event = loader.get_event()
        mark = event.start_mark
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            open_nodes.append(_Node(event.anchor))
            if len(open_nodes) > DEEPEST + 1:
                raise OutOfBounds(
                    problem=f"is nested more than {DEEPEST} levels deep", problem_mark=mark, note=REDUCE
                )
            continue
        if isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            node = open_nodes.pop()
        elif isinstance(event, yaml.ScalarEvent):
            node = _Node(event.anchor, characters=len(event.value))
        elif isinstance(event, yaml.AliasEvent):
            if any(parent.anchor == event.anchor for parent in open_nodes):
                problem = f"the alias *{event.anchor} is inside of what it names"
                raise OutOfBounds(problem=problem, problem_mark=mark, note=_REPEAT)
            node = anchors.get(event.anchor or "", _Node(None))  # an unknown one is an error of the composer
        else:
            continue
        _add(node, open_nodes, mark)
        if node.anchor is not None:
            anchors[node.anchor] = node


def _add(node: _Node, open_nodes: list[_Node], mark: Any) -> None:
    """Count ``node`` as a part of the innermost open node. Raises OutOfBounds."""
    open_nodes[-1].add(node)
    if len(open_nodes) - 1 + node.height > DEEPEST:
        problem = f"is nested more than {DEEPEST} levels deep, with aliases written out"
        raise OutOfBounds(problem=problem, problem_mark=mark, note=_REPEAT)
    if sum(parent.values for parent in open_nodes) > MOST_VALUES:
        problem = f"has more than {MOST_VALUES:,} values, with aliases written out"
        raise OutOfBounds(problem=problem, problem_mark=mark, note=_REPEAT)
    if sum(parent.characters for parent in open_nodes) > MOST_CHARACTERS:
        problem = f"has more than {MOST_CHARACTERS:,} characters, with aliases written out"
        raise OutOfBounds(problem=problem, problem_mark=mark, note=_REPEAT)
