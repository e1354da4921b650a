"""Explains in plain English which field of a job is invalid, its value, and the values that it accepts."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from msgspec import inspect

from cloudtrain.errors import InvalidJob, nearest

_type_info = cache(inspect.type_info)
"""msgspec walks through all structs below a type at each call: 20 ms for a job."""
LONGEST = 60
"""The most characters of a text in a message."""
QUOTE = "Put it in quotes to make it text."


def expected(kind: inspect.Type) -> str:
    """The values that a field of type ``kind`` accepts.

    >>> expected(inspect.type_info(int | None))
    'a whole number'
    """
    if isinstance(kind, inspect.UnionType):
        parts = [part for part in kind.types if not isinstance(part, inspect.NoneType)]
        return " or ".join(dict.fromkeys(map(expected, parts)))
    if isinstance(kind, inspect.LiteralType):
        return _one_of(sorted("false" if value is False else str(value) for value in kind.values))
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, (inspect.IntType, inspect.FloatType)):
        return _number(kind)
    if isinstance(kind, inspect.StrType):
        return _text(kind)
    if isinstance(kind, inspect.ListType):
        return "a list"
    return "a mapping"


def _number(kind: inspect.IntType | inspect.FloatType) -> str:
    name = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
    if kind.ge is not None and kind.le is not None:
        return f"{name} from {kind.ge:g} to {kind.le:,}"
    if kind.ge is not None:
        return f"{name} of at least {kind.ge:g}"
    return f"{name} above {kind.gt:g}" if kind.gt is not None else name


def _text(kind: inspect.StrType) -> str:
    choices = re.fullmatch(r"\^\(([\w|]+)\)\$", kind.pattern or "")
    if choices:
        return _one_of(choices[1].split("|"))
    return f"text that matches {kind.pattern}" if kind.pattern else "text"


def _one_of(choices: Sequence[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def given(value: Any, *, secret: bool = False) -> str:
    """A description of ``value``: the value itself unless it is long or ``secret``.

    >>> given(True), given([1, 2]), given("many"), given(None)
    ('true', 'a list', "'many'", 'nothing')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return "a number" if secret else repr(value)
    if isinstance(value, str):
        return "text" if secret or len(value) > LONGEST else repr(value)
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a mapping" if isinstance(value, dict) else f"a Python object of type {type(value).__name__}"


SECONDS = frozenset(
    {
        *("hang_after", "hang_timeout", "host_timeout", "join_timeout", "keep_alive_period_in_seconds"),
        *("max_pending_time_in_seconds", "max_run", "max_wait", "stop_grace"),
    }
)
"""The fields of a job that are times."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_CLOCK = re.compile(r"(?:(?P<d>\d{1,4})-)?(?P<h>\d{1,4}):(?P<m>[0-5]?\d):(?P<s>[0-5]?\d)")
"""As in Slurm and PBS. Two numbers are ambiguous, and not accepted: minutes and seconds, or hours and minutes."""
_TIME = re.compile(
    r"(\d{1,9}(?:\.\d{1,3})?)\s*(?:(s)(?:ec(?:ond)?s?)?|(m)(?:in(?:ute)?s?)?|(h)(?:(?:ou)?rs?)?|(d)(?:ays?)?|(w)(?:eeks?)?)",
    re.IGNORECASE,
)


def in_seconds(text: str) -> str:
    """The hint on how to write ``text`` for a field in seconds.

    >>> in_seconds("1.1 hours"), in_seconds("0.4 s")
    ('Write the seconds: 3960.', 'Write the seconds: 1.')
    >>> in_seconds("02:00:00"), in_seconds("1-00:00:30"), in_seconds("1h 30m")
    ('Write the seconds: 7200.', 'Write the seconds: 86430.', 'Write the seconds: 5400.')
    >>> in_seconds("soon")
    'Write the seconds as a number: 3600 is an hour.'
    """
    clock = _CLOCK.fullmatch(text.strip())
    parts = [(unit, number) for unit, number in clock.groupdict("0").items()] if clock else _times(text)
    if not parts:
        return "Write the seconds as a number: 3600 is an hour."
    seconds = sum(float(number) * _UNITS[unit] for unit, number in parts)
    return f"Write the seconds: {math.ceil(round(seconds, 3))}."  # 0 would mean something else


def _times(text: str) -> list[tuple[str, str]]:
    """The units and the numbers of ``text``, such as "1h 30m"; empty if it contains anything else."""
    if _TIME.sub("", text).strip():
        return []
    return [("".join(filter(None, match.groups()[1:])).lower(), match[1]) for match in _TIME.finditer(text)]


def advice(kind: inspect.Type, value: Any) -> str:
    """The hint on how to write ``value`` for a field of type ``kind``; empty if that is not clear."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if isinstance(value, str) and any(isinstance(one, (inspect.IntType, inspect.FloatType)) for one in kinds):
        return "Write the number without quotes." if re.fullmatch(r"[-+]?\d+(\.\d+)?", value) else ""
    if isinstance(value, str) and any(isinstance(one, inspect.BoolType) for one in kinds):
        return "Write true or false without quotes." if value.lower() in ("true", "false") else ""
    if isinstance(value, (bool, int, float)) and any(isinstance(one, inspect.StrType) for one in kinds):
        return QUOTE
    if isinstance(value, str) and any(isinstance(one, inspect.ListType) for one in kinds):
        return "Write a list, also for a single value: [VALUE]."
    return ""


_ERROR = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$?(?P<path>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?P<problem>contains unknown|missing required) field `(?P<field>.*)`")
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<position>\d+)\]|(?P<any>\[\.\.\.\])")
_SECRET = ("environment", "secrets", "notify")
"""The fields whose values no message shows."""
_IN_PYTHON = {
    "git_config": "Only an Estimator in Python has it. In a job file, name the folder of a clone: source_dir."
}
"""Arguments that are not fields of a job file, and their replacements."""
OTHER_NAMES = {
    "arguments": ("args", "argv", "script_args"),
    "checkpoint_s3_uri": ("checkpoint_dir", "checkpoint_path", "checkpoint_uri"),
    "distribution": (
        "ddp",
        "horovod",
        "launcher",
        "mpi",
        "processes",
        "strategy",
        "torch_distributed",
        "torchrun",
    ),
    "entry_point": ("command", "main", "program", "run", "script"),
    "environment": ("env", "env_vars", "envs"),
    "hyperparameters": ("config", "hparams", "parameters", "params"),
    "image_uri": ("container", "container_image", "docker_image", "image"),
    "inputs": ("channels", "data", "datasets"),
    "instance_count": ("hosts", "nnodes", "nodes", "num_nodes", "num_workers", "replicas"),
    "instance_type": ("machine_type", "node_type"),
    "max_retry_attempts": ("max_restarts", "max_retries", "retries"),
    "max_run": ("max_time", "time", "time_limit", "timeout", "walltime"),
    "output_path": ("output", "output_dir"),
    "platform_options": ("account", "gpus", "namespace", "partition", "qos", "queue"),
    "processes_per_host": (
        "nproc_per_node",
        "ntasks_per_node",
        "num_processes",
        "processes_per_node",
        "slots",
    ),
    "source_dir": ("code", "code_dir", "workdir", "working_dir"),
    "torch_distributed": ("ddp", "pytorch", "torchrun"),
    "use_spot_instances": ("preemptible", "spot", "use_spot"),
}
"""For each field of a job, its names in other launchers, and the names of settings that it contains."""


def suggest(name: str, known: Collection[str]) -> str:
    """The field of ``known`` that ``name`` may mean, as a sentence; if there is none, all of them."""
    return nearest(name, known, OTHER_NAMES)


def explain(error: str, value: Any, kind: type, where: str = "") -> InvalidJob:
    """The error to show for ``error``, the message with which msgspec refused to convert ``value`` to a ``kind``.

    Args:
        where: the path of ``value`` itself.
    """
    match = _ERROR.fullmatch(error)
    assert match, error
    found, wanted, path = _locate(value, _type_info(kind), match["path"] or "")
    path = f"{where}{path}".lstrip(".")
    if match["key"]:
        names = ", ".join(str(key) for key in found if not isinstance(key, str))
        return InvalidJob(f"{path}: the name {names} is not text".lstrip(": "), hint=QUOTE)
    field = _FIELD.fullmatch(match["what"])
    if field:
        name = ".".join(filter(None, [path, field["field"]]))
        if field["problem"] == "missing required":
            return InvalidJob(f"{name}: this field is required")
        structs = [part for part in _parts(wanted) if isinstance(part, inspect.StructType)]
        known = [one.name for struct in structs for one in struct.fields]
        return InvalidJob(
            f"unknown field {name!r}", hint=_IN_PYTHON.get(name) or suggest(field["field"], known)
        )
    is_secret = path.partition(".")[0].partition("[")[0] in _SECRET
    values, hint = expected(wanted), advice(wanted, found)
    if path in SECONDS:
        values = values.replace("number", "number of seconds", 1)
        hint = hint or (in_seconds(found) if isinstance(found, str) else "")
    problem = f"expected {values}, got {given(found, secret=is_secret)}"
    return InvalidJob(f"{path}: {problem}" if path else problem, hint=hint)


def _locate(value: Any, kind: inspect.Type, path: str) -> tuple[Any, inspect.Type, str]:
    """The value at ``path``, its type, and its path in full: msgspec writes ``[...]`` for any key of a dict."""
    place = ""
    for step in _STEP.finditer(path):
        kind = _inside(kind, step["name"])
        if step["any"]:
            name = next(key for key, item in value.items() if not _is_valid(item, kind))
            value, place = value[name], f"{place}.{name}"
        elif step["name"]:
            value, place = value[step["name"]], f"{place}.{step['name']}"
        else:
            value, place = value[int(step["position"])], f"{place}[{step['position']}]"
    return value, kind, place


def _inside(kind: inspect.Type, field: str | None) -> inspect.Type:
    """The type of a field of a struct; without ``field``, of the items of a list or a dict."""
    for part in _parts(kind):
        if isinstance(part, inspect.StructType) and field:
            return next(one.type for one in part.fields if one.encode_name == field)
        if isinstance(part, inspect.DictType):
            return part.value_type
        if isinstance(part, inspect.ListType):
            return part.item_type
    return inspect.AnyType()


def _parts(kind: inspect.Type) -> Iterator[inspect.Type]:
    yield from kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _is_valid(value: Any, kind: inspect.Type) -> bool:
    """Whether an item of a dict, which is text, a boolean or a dict with names, is valid."""
    if isinstance(kind, inspect.StrType):
        return isinstance(value, str)
    if isinstance(kind, inspect.DictType):
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return isinstance(value, bool) if isinstance(kind, inspect.BoolType) else True
