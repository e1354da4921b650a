"""Translates conditions and sort keys to SQL for SQLite and PostgreSQL. Values are always passed as parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from cloudtrain.contract import JobStatus
from cloudtrain.errors import nearest
from cloudtrain.history.expression import (
    Combination,
    Comparison,
    Condition,
    Constant,
    InvalidQuery,
    Literal,
    Name,
    parse_name,
)
from cloudtrain.history.past_job import PastJob
from cloudtrain.index.schema import JOBS

NUMBER, TEXT, TIME = "number", "text", "time"
EXAMPLES = {
    NUMBER: "a number",
    TEXT: 'text, in quotes: "..."',
    TIME: 'a time: "2026-11-28" or "2026-11-28 14:00"',
}
DURATION = "(COALESCE(job.ended_at, job.seen_at) - job.started_at)"
FIELDS = {
    "name": ("job.name", TEXT),
    "platform": ("job.platform", TEXT),
    "owner": ("job.owner", TEXT),
    "status": ("job.status", TEXT),
    "submitted": ("job.submitted_at", TIME),
    "started": ("job.started_at", TIME),
    "ended": ("job.ended_at", TIME),
    "duration": (DURATION, NUMBER),
    "attempt": ("job.attempt", NUMBER),
    "exit_code": ("job.exit_code", NUMBER),
    "reason": ("job.reason", TEXT),
    "failure": ("job.failure", TEXT),
    "why": ("job.why", TEXT),
    "commit": ("job.git_commit", TEXT),
    "script": ("job.script", TEXT),
    "instance_type": ("job.instance_type", TEXT),
    "instance_count": ("job.instance_count", NUMBER),
    "cost": ("job.cost", NUMBER),
    "currency": ("job.currency", TEXT),
    "plan_error": ("job.plan_error", NUMBER),
    "plan_cost_error": ("job.plan_cost_error", NUMBER),
}
"""The fields of every job, by the names that users write: the SQL, and the kind of the values."""
ATTRIBUTES = {
    "submitted": "submitted_at", "started": "started_at", "ended": "ended_at", "commit": "git_commit",
}  # fmt: skip
"""The attributes of `PastJob` whose names differ from those of the fields."""
PARTS = ("last", "min", "max")
"""The values that are kept of a metric."""
MOST_SHOWN = 60
"""The most names that an error lists."""


@dataclass(frozen=True)
class Known:
    """The names of the parameters and metrics of all jobs."""

    parameters: Collection[str] = ()
    metrics: Collection[str] = ()


@dataclass(frozen=True)
class Field:
    """The meaning of a name."""

    kind: str
    """``field``, ``parameter`` or ``metric``."""
    name: str
    part: str = ""
    """For a metric, one of `PARTS`."""

    @property
    def label(self) -> str:
        return f"{self.name}.{self.part}" if self.part in PARTS[1:] else self.name

    @property
    def qualified(self) -> str:
        return {"parameter": "params.", "metric": "metrics."}.get(self.kind, "") + self.label

    def of(self, job: PastJob) -> str | float | None:
        """The value of the field in a job; None if it has none."""
        if self.kind == "field":
            found: str | float | None = getattr(job, ATTRIBUTES.get(self.name, self.name))
            return found
        if self.kind == "parameter":
            return job.parameters.get(self.name)
        return getattr(job.metrics.get(self.name), self.part, None)


def labels(fields: Sequence[Field]) -> list[str]:
    """The label of each field, which is qualified if another field has the same label."""
    found = [field.label for field in fields]
    return [
        field.qualified if found.count(label) > 1 else label
        for field, label in zip(fields, found, strict=True)
    ]


@dataclass(frozen=True)
class Sql:
    text: str
    values: tuple[object, ...] = ()


def resolve(name: Name, known: Known, option: str = "--where") -> Field:
    """The meaning of ``name``. Raises InvalidQuery if it is unknown, or is both a parameter and a metric."""
    first, rest = name.parts[0], name.parts[1:]
    if rest and first in ("params", "parameters") and ".".join(rest) in known.parameters:
        return Field("parameter", ".".join(rest))
    if rest and first == "metrics" and (found := _metric(rest, known)):
        return found
    if name.text in FIELDS:
        return Field("field", name.text)
    metric, is_parameter = _metric(name.parts, known), name.text in known.parameters
    where = f"{option}, column {name.column}" if option == "--where" else option
    if metric and is_parameter:
        raise InvalidQuery(
            f"{where}: {name.text!r} is a parameter and a metric",
            hint=f"Write params.{name.text} or metrics.{name.text}.",
        )
    if metric or is_parameter:
        return metric or Field("parameter", name.text)
    names = [*FIELDS, *known.parameters, *known.metrics]
    close = nearest(name.text, names)
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    raise InvalidQuery(
        f"{where}: no job has a field, a parameter or a metric {name.text!r}",
        hint=f"{close if close.startswith('Did') else ''} Known: {', '.join(names[:MOST_SHOWN])}{more}. "
        "Text is quoted: status == 'Failed'.".strip(),
    )


def _metric(parts: tuple[str, ...], known: Known) -> Field | None:
    whole, before = ".".join(parts), ".".join(parts[:-1])
    if whole in known.metrics:
        return Field("metric", whole, "last")
    if parts[-1] in PARTS and before in known.metrics:
        return Field("metric", before, parts[-1])
    return None


def condition_sql(condition: Condition, known: Known) -> Sql:
    """The condition of a WHERE clause. A comparison is not true for a job that lacks one of its names."""
    if isinstance(condition, Comparison):
        return _comparison(condition, known)
    parts = [condition_sql(part, known) for part in condition.parts]
    values = tuple(value for part in parts for value in part.values)
    if condition.operator == "NOT":
        return Sql(f"(NOT {parts[0].text})", values)
    return Sql(f"({f' {condition.operator} '.join(part.text for part in parts)})", values)


def sort_sql(text: str, known: Known) -> Sql:
    """The key of an ORDER BY clause for a name; a leading dash means descending order. Jobs that lack it are last."""
    is_down = text.startswith("-")
    field = resolve(parse_name(text.removeprefix("-"), "--sort"), known, "--sort")
    is_number = kind_of(field) != TEXT
    keys = [_value(field, NUMBER if is_number else TEXT)]
    if field.kind == "parameter":
        keys = [_value(field, NUMBER), _value(field, TEXT)]
    order = "DESC" if is_down else "ASC"
    texts = [f"{key.text} IS NULL, {key.text} {order}" for key in keys]  # SQLite has NULLS LAST since 3.30
    if field == Field("field", "cost"):  # costs in different currencies are not compared
        texts.insert(0, "job.cost IS NULL, job.currency")
    return Sql(", ".join(texts), tuple(value for key in keys for value in 2 * key.values))


def kind_of(field: Field) -> str:
    """The kind of a field: `NUMBER`, `TEXT` or `TIME`. A parameter is text."""
    if field.kind == "field":
        return FIELDS[field.name][1]
    return NUMBER if field.kind == "metric" else TEXT


def _value(field: Field, kind: str) -> Sql:
    if field.kind == "field":
        return Sql(FIELDS[field.name][0])
    if field.kind == "metric":
        return Sql(f"(SELECT {field.part} FROM metrics WHERE job = job.id AND name = ?)", (field.name,))
    column = "number" if kind == NUMBER else "value"
    return Sql(f"(SELECT {column} FROM parameters WHERE job = job.id AND name = ?)", (field.name,))


def _comparison(comparison: Comparison, known: Known) -> Sql:
    left, right = comparison.left, comparison.right
    if isinstance(left, Literal) and isinstance(right, Literal):
        raise InvalidQuery(
            f"--where, column {left.column}: compares a value with a value", hint="One side is a name."
        )
    named, other = (left, right) if isinstance(left, Name) else (right, left)
    assert isinstance(named, Name)
    field = resolve(named, known)
    if isinstance(other, Name):
        return _fields(field, resolve(other, known), other, comparison, swapped=named is not left)
    values = other.value if isinstance(other.value, tuple) else (other.value,)
    if None in values:
        return _is_null(field, values, comparison.operator, other)
    kind, given = _converted(field, values, other)
    found = _value(field, kind)
    if comparison.operator in ("IN", "NOT IN"):
        if not given:
            raise InvalidQuery(f"--where, column {other.column}: there is no value in the parentheses")
        places = ", ".join("?" * len(given))
        return Sql(f"({found.text} {comparison.operator} ({places}))", (*found.values, *given))
    sides = [found, Sql("?", given)]
    if named is not left:
        sides.reverse()
    return Sql(
        f"({sides[0].text} {comparison.operator} {sides[1].text})", (*sides[0].values, *sides[1].values)
    )


def _fields(one: Field, other: Field, place: Name, comparison: Comparison, *, swapped: bool) -> Sql:
    is_text = TEXT in (kind_of(one), kind_of(other)) and "field" in (one.kind, other.kind)
    if is_text and {kind_of(one), kind_of(other)} != {TEXT}:
        raise InvalidQuery(f"--where, column {place.column}: compares text with a number")
    sides = [
        _value(field, TEXT if is_text else NUMBER) for field in ((other, one) if swapped else (one, other))
    ]
    text = f"({sides[0].text} {comparison.operator} {sides[1].text})"
    return Sql(text, (*sides[0].values, *sides[1].values))


def _is_null(field: Field, values: tuple[Constant, ...], operator: str, place: Literal) -> Sql:
    if operator not in ("=", "<>") or values != (None,):
        raise InvalidQuery(
            f"--where, column {place.column}: None has no order",
            hint="Write: loss == None, or: loss != None.",
        )
    found = _value(field, TEXT)
    return Sql(f"({found.text} IS {'NOT ' if operator == '<>' else ''}NULL)", found.values)


def _converted(field: Field, values: tuple[Constant, ...], place: Literal) -> tuple[str, tuple[object, ...]]:
    """The kind of value to compare with, and the values converted to it."""
    wanted = kind_of(field)
    if field.kind == "parameter":
        numbers = [value for value in values if isinstance(value, float)]
        if len(numbers) == len(values):
            return NUMBER, values
        return TEXT, tuple(_parameter_text(value) for value in values)
    convert: Callable[[Constant], object] = {NUMBER: _number, TEXT: _text, TIME: _time}[wanted]
    try:
        given = tuple(convert(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        raise InvalidQuery(
            f"--where, column {place.column}: {field.name} is compared with something that it cannot be",
            hint=f"It is {EXAMPLES[wanted]}.",
        ) from None
    if field == Field("field", "status"):
        given = tuple(_status(str(value), place) for value in given)
    return wanted, given


def _parameter_text(value: Constant) -> str:
    """A value as scripts write it, with whole numbers without a decimal point."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _number(value: Constant) -> float:
    if isinstance(value, bool) or not isinstance(value, float):
        raise TypeError
    return value


def _text(value: Constant) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _time(value: Constant) -> float:
    return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else _number(value)


def _status(text: str, place: Literal) -> str:
    for status in JobStatus:
        if text.lower() == status.value.lower():
            return status.value
    raise InvalidQuery(
        f"--where, column {place.column}: there is no status {text!r}",
        hint=nearest(text, map(str, JobStatus)),
    )


def names_in(condition: Condition | None) -> Iterator[Name]:
    """The names in a condition, in the order of the expression."""
    if condition is None:
        return
    if isinstance(condition, Combination):
        for part in condition.parts:
            yield from names_in(part)
    else:
        yield from (side for side in (condition.left, condition.right) if isinstance(side, Name))


def select(where: str, order: str) -> str:
    """The query for the ids of the jobs that fulfil a condition, both in SQL."""
    return f"SELECT job.id FROM {JOBS} AS job WHERE job.status IS NOT NULL AND {where} ORDER BY {order}"


def named(part: str, platform: str) -> Sql:
    """The condition that a job's name contains ``part``, ignoring case, and that it is on ``platform``, if given."""
    escaped = re.sub(r"([\\%_])", r"\\\1", part.lower())
    parts = ["LOWER(job.name) LIKE ? ESCAPE '\\'", *(["job.platform = ?"] if platform else [])]
    return Sql(f"({' AND '.join(parts)})", (f"%{escaped}%", *([platform] if platform else [])))
