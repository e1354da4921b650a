"""Reads job files, strict YAML, and overrides of their fields on the command line: ``--set a.b=1``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cloudtrain._system.paths import relative
from cloudtrain.contract.text import one_line
from cloudtrain.errors import InvalidJob
from cloudtrain.spec.conversion import DEEPEST, LARGEST_DOCUMENT, LONGEST_SHOWN, REDUCE
from cloudtrain.spec.names import to_uri

PATH_FIELDS = ("source_dir", "dependencies")

_TABS = "Indent with spaces: YAML does not allow tabs."
_CHECK_YAML = "A job file has one field per line: entry_point: train.py. Quote text with special characters."


def parse_yaml(text: str, name: str = "<text>", *, field: str = "") -> Any:
    """The value of a YAML (or JSON) document, with the numbers and booleans of YAML 1.2.

    Items of ``arguments`` are always text, exactly as written: ``1.10`` and ``true`` are strings there. So are numbers
    in ``environment``, and versions such as ``framework_version``.

    Args:
        name: the name of the document, for messages.
        field: the field whose value is the document; empty if it is a mapping of fields.

    Raises:
        InvalidJob: the text is not valid YAML or has a duplicate key. The message gives line and column.
    """
    import yaml

    from cloudtrain.spec._loader import load

    # PyYAML hardly checks values with a tag, such as `!!int`, before it converts them
    failures = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, OverflowError)
    if len(text) > LARGEST_DOCUMENT:
        raise InvalidJob(f"{name} has more than {LARGEST_DOCUMENT:,} characters", hint=REDUCE)
    try:
        return load(text, field=field)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is None:
            raise InvalidJob(f"{name}: {error}", hint=_CHECK_YAML) from None
        line = "".join(text.splitlines()[mark.line : mark.line + 1])
        at_tab = line[mark.column : mark.column + 1] == "\t"
        raise InvalidJob(
            f"{name}, line {mark.line + 1}, column {mark.column + 1}: {one_line(error.problem)}",
            hint=_TABS if at_tab else error.note or _CHECK_YAML,
        ) from None
    except failures as error:
        raise InvalidJob(f"{name}: {one_line(error)}", hint=_CHECK_YAML) from None


def read_job_file(path: Path, *, may_be_empty: bool = False) -> dict[str, Any]:
    """The fields of a job file. Its paths, including those of channels, are relative to its folder.

    Args:
        may_be_empty: accept a file without any field, such as one with comments only.

    Raises:
        InvalidJob: the file does not exist, cannot be read, or is not a YAML mapping of fields.
    """
    text = read_text(path)
    fields = parse_yaml(text, str(path))
    if fields is None and may_be_empty:
        return {}
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        raise InvalidJob(
            f"{path} has no fields" if fields is None else f"{path} is not a mapping of fields",
            hint="A job file has one field per line, for example: entry_point: train.py",
        )
    fields = {
        key: _absolute(path.parent, value) if key in PATH_FIELDS else value for key, value in fields.items()
    }
    fields = _with_entry_point_in_source(fields, path.parent)
    options = fields.get("platform_options")
    if isinstance(options, dict) and _is_relative_program(options.get("python")):
        fields["platform_options"] = {**options, "python": _absolute(path.parent, options["python"])}
    inputs = fields.get("inputs")
    if isinstance(inputs, dict):
        fields["inputs"] = {name: _absolute_channel(path.parent, channel) for name, channel in inputs.items()}
    return fields


def read_text(path: Path) -> str:
    """The text of a job file. Raises InvalidJob if it cannot be read, or is larger than `LARGEST_DOCUMENT`."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_DOCUMENT + 1)
    except FileNotFoundError:
        raise InvalidJob(f"there is no file {path}", hint="Check the path.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidJob(
            f"{path} cannot be read: {reason}", hint="Check that it is a readable file."
        ) from None
    if len(data) > LARGEST_DOCUMENT:
        raise InvalidJob(f"{path} has more than {LARGEST_DOCUMENT:,} bytes", hint=REDUCE)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidJob(
            f"{path} cannot be read: line {line} is not UTF-8 text", hint="Save the file as UTF-8."
        ) from None


def _with_entry_point_in_source(fields: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``fields`` with an entry point relative to ``source_dir`` if it is given relative to ``folder``."""
    entry_point, source_dir = fields.get("entry_point"), fields.get("source_dir")
    if not isinstance(entry_point, str) or not isinstance(source_dir, str) or "://" in source_dir:
        return fields
    path = os.path.normpath(folder.absolute() / entry_point)
    name = relative(path, source_dir)
    if (
        name.startswith(os.pardir)
        or not os.path.isfile(path)
        or os.path.exists(f"{source_dir}/{entry_point}")
    ):
        return fields
    return {**fields, "entry_point": name}


def _is_relative_program(python: Any) -> bool:
    """Whether ``python`` is a path, and not a name on the PATH or below a home folder."""
    return isinstance(python, str) and bool(os.path.dirname(python)) and not python.startswith("~")


def _absolute_channel(folder: Path, channel: Any) -> Any:
    """The channel, with a path converted to a URI."""
    if isinstance(channel, dict) and isinstance(channel.get("s3_data"), str):
        return {**channel, "s3_data": _absolute_channel(folder, channel["s3_data"])}
    return to_uri(channel, folder) if isinstance(channel, str) else channel


def _absolute(folder: Path, value: Any) -> Any:
    """A path, or a list of paths, made absolute. Other values are returned as they are, for validation."""
    if isinstance(value, list):
        return [_absolute(folder, item) for item in value]
    return str((folder / value).absolute()) if isinstance(value, str) and "://" not in value else value


_EXAMPLE = "For example: --set hyperparameters.lr=0.1"


def apply_overrides(fields: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """``fields``, overridden by each ``path=value`` in ``settings``. Values are YAML.

    Raises:
        InvalidJob: a setting has no ``=``, or a part of its path is not a mapping.

    >>> apply_overrides({"hyperparameters": {"lr": 1}}, ["hyperparameters.lr=0.1", "instance_count=2"])
    {'hyperparameters': {'lr': 0.1}, 'instance_count': 2}
    """
    for setting in settings:
        path, separator, text = setting.partition("=")
        if not separator or not path:
            raise InvalidJob(
                f"--set {path[:LONGEST_SHOWN]}: does not have the form FIELD=VALUE", hint=_EXAMPLE
            )
        if path.count(".") > DEEPEST:
            raise InvalidJob(f"--set {path[:LONGEST_SHOWN]}: has more than {DEEPEST} parts", hint=_EXAMPLE)
        name = f"--set {path[:LONGEST_SHOWN]}"
        value = parse_yaml(text, name, field=path)
        fields = _put(fields, path.split("."), value, name, "--set FIELD='{NAME: VALUE}'")
    return fields


def put_field(fields: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """``fields`` with ``value`` at the dotted ``path``. Raises InvalidJob if a part of the path is not a mapping."""
    return _put(fields, path.split("."), value, path[:LONGEST_SHOWN], "FIELD: {NAME: VALUE}")


def _put(fields: Any, path: list[str], value: Any, name: str, example: str) -> dict[str, Any]:
    if not isinstance(fields, dict):
        part = path[0][:LONGEST_SHOWN]
        problem = f"cannot set {part!r} in a field that is not a mapping"
        raise InvalidJob(f"{name}: {problem}", hint=f"Set the whole field: {example}.")
    key, *rest = path
    return {**fields, key: _put(fields.get(key, {}), rest, value, name, example) if rest else value}
