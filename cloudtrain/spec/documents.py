"""Job files: YAML, read strictly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from cloudtrain.errors import InvalidJob

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

PATH_FIELDS = ("source_dir", "dependencies")


class _StrictLoader(_Base):
    """PyYAML's safe loader, which also refuses duplicate keys and reads ``1e-3`` as the number it is."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


# YAML 1.2's numbers: YAML 1.1, PyYAML's, wants a dot and a sign in 1.0e+3. Its yes/no/on/off are strings here.
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
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
        place = f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark else name
        tab = (bool(mark) and "\t" in (error.problem or "")) or "'\\t'" in (error.problem or "")
        hint = "YAML indents with spaces, never with tabs." if tab else ""
        raise InvalidJob(f"{place}: {error.problem or error}", hint=hint) from None
    except yaml.YAMLError as error:
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
    if not isinstance(fields, dict):
        raise InvalidJob(
            f"{path} is not a mapping of fields", hint="A job file begins like: entry_point: train.py"
        )
    return {key: _beside(path.parent, key, value) for key, value in fields.items()}


def _beside(folder: Path, key: str, value: Any) -> Any:
    """Paths of a job file made absolute; an entry point without a source_dir is such a path too."""
    if key not in PATH_FIELDS:
        return value
    if isinstance(value, list):
        return [str((folder / item).absolute()) if isinstance(item, str) else item for item in value]
    return str((folder / value).absolute()) if isinstance(value, str) and "://" not in value else value
