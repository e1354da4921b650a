"""Job files: YAML, read strictly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob

PATH_FIELDS = ("source_dir", "dependencies")


def parse_yaml(text: str, name: str = "<text>") -> Any:
    """The value of a YAML (or JSON) document; numbers and booleans as in YAML 1.2.

    Raises:
        InvalidJob: it is no YAML, or a key stands twice; the message says the line and column.
    """
    import yaml

    from cloudtrain.spec._loader import StrictLoader

    try:
        return yaml.load(text, StrictLoader)
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
    """The fields in a job file. Paths in it, of channels too, are relative to the folder it stands in.

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
    fields = {
        key: _beside(path.parent, value) if key in PATH_FIELDS else value for key, value in fields.items()
    }
    inputs = fields.get("inputs")
    if isinstance(inputs, dict):
        fields["inputs"] = {name: _channel_beside(path.parent, channel) for name, channel in inputs.items()}
    return fields


def _channel_beside(folder: Path, channel: Any) -> Any:
    """A channel that is given as a path, as a URI."""
    if isinstance(channel, dict) and isinstance(channel.get("s3_data"), str):
        return {**channel, "s3_data": _channel_beside(folder, channel["s3_data"])}
    return (
        (folder / channel).absolute().as_uri()
        if isinstance(channel, str) and "://" not in channel
        else channel
    )


def _beside(folder: Path, value: Any) -> Any:
    """A path, or a list of paths, made absolute; anything else is left to validation."""
    if isinstance(value, list):
        return [_beside(folder, item) for item in value]
    return str((folder / value).absolute()) if isinstance(value, str) and "://" not in value else value
