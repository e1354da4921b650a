"""Job files: YAML, read strictly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from cloudtrain.errors import InvalidJob

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

PATH_FIELDS = ("source_dir", "dependencies")


class _StrictLoader(_Loader):
    """PyYAML's safe loader, which also refuses a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    problem = f"the key {key_node.value!r} stands twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
                seen.add(key_node.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


# PyYAML speaks YAML 1.1, where 1e-3 is a string, and no, 1:30, 010 and 2024-01-01 are none. Here it is as in 1.2
# (core schema), but that 010 stays a string: neither 8 nor 10 is what its writer wrote.
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
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
for _name, (_pattern, _first) in _RESOLVERS.items():
    _StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), list(_first)
    )


def parse_yaml(text: str, name: str = "<text>") -> Any:
    """The value of a YAML (or JSON) document; numbers and booleans as in YAML 1.2.

    Raises:
        InvalidJob: it is no YAML, or a key stands twice; the message says the line and column.
    """
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is None:
            raise InvalidJob(f"{name}: {error}") from None
        line = "".join(text.splitlines()[mark.line : mark.line + 1])
        at_tab = line[mark.column : mark.column + 1] == "\t"
        raise InvalidJob(
            f"{name}, line {mark.line + 1}, column {mark.column + 1}: {error.problem}",
            hint="YAML indents with spaces, never with tabs." if at_tab else "",
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidJob(f"{name}: {error}") from None


def read_job_file(path: Path) -> dict[str, Any]:
    """The fields in a job file. Paths in it are relative to the folder it stands in.

    Raises:
        InvalidJob: there is no such file, it is no text, no YAML, or no mapping of fields.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidJob(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidJob(f"{path} cannot be read: {error}") from None
    fields = parse_yaml(text, str(path))
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        raise InvalidJob(
            f"{path} is not a mapping of fields", hint="A job file begins like: entry_point: train.py"
        )
    return {
        key: _beside(path.parent, value) if key in PATH_FIELDS else value for key, value in fields.items()
    }


def _beside(folder: Path, value: Any) -> Any:
    """A path, or a list of paths, made absolute; anything else is left to validation."""
    if isinstance(value, list):
        return [_beside(folder, item) for item in value]
    return str((folder / value).absolute()) if isinstance(value, str) and "://" not in value else value
