"""How one host of a job ended, in the few bytes that a platform keeps: on Kubernetes, a termination message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.contract.failure import FailureReport
from cloudtrain.contract.status import JobStatus

LARGEST_ENDING = 4096
"""The bytes of a container's termination message that a kubelet keeps."""

REPORT_SIZE = 1536
"""Bytes below which the failure report is not cut as long as there is anything else to leave out."""
NAME_SIZE = 120
"""Maximum bytes of the name of an exception, a host or a phase in a report that is cut."""
LONGEST_WARNING = 200


STEPS = ("step", "total_steps", "progress")
"""The names in `Ending.steps`."""


@dataclass(frozen=True)
class Ending:
    """How one host ended. `from_json` is the inverse of `to_json`, except for parts that `to_json` leaves out."""

    status: JobStatus
    failure: FailureReport | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each phase that has ended on this host."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last value of each metric that this host found."""
    goodput: Mapping[str, Any] = field(default_factory=dict)
    """The fields of `cloudtrain.observe.Goodput` for this attempt, from the start of the runtime; empty if unknown."""
    warnings: tuple[str, ...] = ()
    """The last distinct warnings, oldest first."""
    uploaded: Mapping[str, str] = field(default_factory=dict)
    """The URI of each kind of output: ``model``, ``output``."""
    steps: Mapping[str, float] = field(default_factory=dict)
    """``step``, ``total_steps`` and ``progress`` of a `JobDescription`, as far as the script has reported them."""

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON, without empty fields."""
        values = {
            "status": str(self.status),
            "failure": _report_dict(self.failure) if self.failure else None,
            "phases": dict(self.phases),
            "metrics": dict(self.metrics),
            "steps": dict(self.steps),
            "goodput": dict(self.goodput),
            "warnings": list(self.warnings),
            "uploaded": dict(self.uploaded),
        }
        return {name: value for name, value in values.items() if value}

    def to_json(self) -> str:
        """At most `LARGEST_ENDING` bytes of UTF-8.

        Leaves out the least important parts first: old warnings, most metrics, the division of the lost time, phases,
        then the rest of the report's long texts.
        """
        for ending in self._shortened():
            text = _dump(ending)
            if len(text) <= LARGEST_ENDING:
                return text.decode()
        return _dump(Ending(self.status)).decode()

    def _shortened(self) -> Iterator[Ending]:
        """This ending, and shorter ones."""
        yield self
        ending = replace(self, failure=_with_short_names(self.failure))
        reductions: tuple[dict[str, Any], ...] = (
            {},
            {"warnings": tuple(text[:LONGEST_WARNING] for text in self.warnings[-3:])},
            {"metrics": _first(self.metrics, 20)},
            {"goodput": {name: value for name, value in self.goodput.items() if name != "lost"}},
            {"phases": _first(self.phases, 12)},
            {"metrics": _first(self.metrics, 3), "phases": {}},
            {"warnings": (), "metrics": {}, "goodput": {}, "steps": {}},
            {"uploaded": {}},
        )
        for reduced in reductions:
            ending = replace(ending, **reduced)
            room = LARGEST_ENDING - len(_dump(replace(ending, failure=None)))
            report = ending.failure
            if report is None:
                yield ending
            elif room >= REPORT_SIZE:
                yield replace(ending, failure=_fitting(report, room))

    @classmethod
    def from_json(cls, text: str | bytes) -> Ending:
        """The inverse of `to_json`. Ignores fields of a newer version. Raises ValueError for any other text."""
        if len(text) > 4 * LARGEST_ENDING:
            raise ValueError("it is too long")
        given = Fields(parse_json(text))
        status: JobStatus = given.parsed("status", JobStatus)
        if not status.is_final:
            raise ValueError(f"status is not final: {status}")
        return cls(
            status=status,
            failure=FailureReport.from_dict(given.mapping("failure")) if "failure" in given else None,
            phases=_numbers(given, "phases"),
            metrics=_numbers(given, "metrics"),
            steps=_steps(given),
            goodput=_goodput(given),
            warnings=given.texts("warnings", ()),
            uploaded=dict(given.text_mapping("uploaded", {})),
        )


def _numbers(given: Fields, name: str) -> dict[str, float]:
    values = given.mapping(name, {})
    inner = Fields(values, name)
    return {key: inner.any_number(key) for key in values}


def _steps(given: Fields) -> dict[str, float]:
    inner = Fields(given.mapping("steps", {}), "steps")
    return {
        name: inner.number(name, least=0) if name == "progress" else inner.integer(name)
        for name in STEPS
        if name in inner
    }


def _goodput(given: Fields) -> dict[str, Any]:
    values = given.mapping("goodput", {})
    if not values:
        return {}
    inner = Fields(values, "goodput")
    lost = inner.mapping("lost", {})
    seconds = Fields(lost, "goodput.lost")
    return {
        **{name: inner.number(name, least=0) for name in ("goodput", "wall", "productive")},
        "lost": {cause: seconds.number(cause, least=0) for cause in lost},
        "measured_by": inner.text("measured_by", "script"),
    }


def _first(values: Mapping[str, float], count: int) -> dict[str, float]:
    return dict(list(values.items())[:count])


def _with_short_names(report: FailureReport | None) -> FailureReport | None:
    """The report with names that are too short to fill the document: a script chooses the names of its exceptions."""
    if report is None:
        return None
    names = ("exception_type", "host", "phase")
    short: dict[str, Any] = {name: _short_name(getattr(report, name)) for name in names}
    return replace(report, **short)


def _short_name(name: str | None) -> str | None:
    while name and len(_encoded(name)) > NAME_SIZE:
        name = name[: min(len(name) - 1, NAME_SIZE, len(name) * 3 // 4)]
    return name


def _fitting(report: FailureReport, size: int) -> FailureReport:
    """The report with as much of its texts as ``size`` bytes allow: first the beginning of the message and the hint,
    then the end of the traceback and the log, and the beginning of the stacks, which has those of the cause."""
    fixed = ("message", "hint")
    head = replace(report, stacks="", log_tail=(), traceback="")
    for limit in (1000, 500, 250, 100, 50, 0):
        if len(_dump_report(head)) <= size // 2:
            break
        cut: dict[str, Any] = {name: getattr(report, name)[:limit] for name in fixed}
        head = replace(head, **cut)
    for name in ("traceback", "log_tail", "stacks"):
        head = _filled(head, report, name, size)
    return head


def _filled(head: FailureReport, report: FailureReport, name: str, size: int) -> FailureReport:
    """``head`` with the longest part of a text of ``report`` that leaves it within ``size`` bytes."""
    value = getattr(report, name)
    text = "\n".join(value) if name == "log_tail" else value
    low, high = 0, min(len(text), size)
    best = head
    while low < high:
        middle = (low + high + 1) // 2
        part = text[:middle] if name == "stacks" else text[-middle:]
        changed: Any = tuple(part.split("\n")) if name == "log_tail" else part
        tried = replace(head, **{name: changed})
        if len(_dump_report(tried)) <= size:
            low, best = middle, tried
        else:
            high = middle - 1
    return best


def _report_dict(report: FailureReport) -> dict[str, Any]:
    """The fields of a report that are not empty, and its message."""
    values = report.to_dict()
    return {name: value for name, value in values.items() if name == "message" or value not in (None, "", [])}


def _dump_report(report: FailureReport) -> bytes:
    return _encoded({"failure": _report_dict(report)})


def _dump(ending: Ending) -> bytes:
    return _encoded(ending.to_dict())


def _encoded(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")
