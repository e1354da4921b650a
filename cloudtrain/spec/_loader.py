"""The YAML 1.2 loader for job files, which rejects duplicate keys. Import it only to read YAML: PyYAML is slow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from cloudtrain.spec.conversion import DEEPEST, MOST_CHARACTERS, MOST_VALUES, REDUCE

_REPEAT = "Write the values without aliases (*name), or repeat fewer of them."


class OutOfBounds(yaml.MarkedYAMLError):
    """The document is too large. ``note`` is the hint."""


@dataclass
class _Node:
    """A value whose content is being read, or that has an anchor."""

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

    This does not recurse. Values of aliases are counted but not built.
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
            node = anchors.get(event.anchor or "", _Node(None))  # the composer reports an unknown alias
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


try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


class StrictLoader(_Loader):
    """PyYAML's safe loader, but duplicate keys are errors."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    problem = f"duplicate key {key_node.value!r}"
                    raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
                seen.add(key_node.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


# PyYAML implements YAML 1.1, where 1e-3 is a string, but no, 1:30, 010 and 2024-01-01 are not. Use the core schema of
# YAML 1.2 instead. One deviation: 010 stays a string, because it could mean 8 or 10.
_RESOLVERS = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
_REPLACED = {f"tag:yaml.org,2002:{name}" for name in (*_RESOLVERS, "timestamp")}
StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
for _name, (_pattern, _first) in _RESOLVERS.items():
    StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), list(_first)
    )


VERSIONS = (
    "framework_version",
    "py_version",
    "pytorch_version",
    "tensorflow_version",
    "transformers_version",
)
"""Fields with numbers that are text: 2.10 is not 2.1."""

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_SCALARS = (*_NUMBERS, "tag:yaml.org,2002:bool", "tag:yaml.org,2002:null")


def load(text: str, *, field: str) -> Any:
    """The value of a document. Raises yaml.YAMLError.

    Args:
        field: the field whose value is the document; empty if it is a mapping of fields.
    """
    events = StrictLoader(text)
    try:
        check_bounds(events)
    finally:
        events.dispose()
    loader = StrictLoader(text)
    try:
        node = loader.get_single_node()
        if field.startswith(
            "environment."
        ):  # --set: a variable is the shell's text, also if it is true or empty
            return text if node is None else loader.construct_document(_as_text(node, *_SCALARS))
        _keep_text(node, field)
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _keep_text(node: Any, field: str) -> None:
    """Keep values of ``field`` as strings, exactly as written, where the field is text.

    These are all items of ``arguments``, and numbers in ``environment`` and in versions. An item without any text
    remains null, because it is a mistake.
    """
    if not field and isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value:
                _keep_text(value, key.value)
    elif field == "arguments" and isinstance(node, yaml.SequenceNode):
        for item in node.value:
            if item.value:
                _as_text(item, item.tag)
    elif field == "environment" and isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            _as_text(value, *_NUMBERS)
    elif field in VERSIONS:
        _as_text(node, *_NUMBERS)


def _as_text(node: Any, *kinds: str) -> Any:
    """The node, as a string if it is a scalar of one of these kinds."""
    if isinstance(node, yaml.ScalarNode) and node.tag in kinds:
        node.tag = "tag:yaml.org,2002:str"
    return node
