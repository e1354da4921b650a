"""The record of a job, which its supervisor keeps in ``state.json``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from cloudtrain._dataclass import dataclass
from cloudtrain._system.processes import identity
from cloudtrain._system.retries import again, is_transient
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.contract.failure import LARGEST_CODE
from cloudtrain.contract.request_body import read_terms
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.supervisor.caps import amount
from cloudtrain.storage.disk_reserve import SPARE_SIZE

if TYPE_CHECKING:
    from cloudtrain.observe.summary import Summary

STOPPED_BY_USER = "stopped by the user"
SIGNAL = "ended by a signal from outside"
INTERRUPT = "interrupted by SIGINT: by Ctrl-C or scancel --signal=INT, for example"
HANGUP = "ended by SIGHUP: its terminal or session was closed, for example"
DAMAGED = "its record is damaged"

RECORD = "state.json"
LARGEST_METRICS = 1 << 14
"""The most characters that the names of metrics in a record may have together."""
LARGEST = 64 << 20
"""The most bytes that are read from a file that only the client and the supervisor write."""


def lost_late(report: FailureReport) -> str:
    """The warning about a host or a supervisor that was lost after the stop of the job began."""
    return f"{report.message}. The job was ending: what was not saved by then is lost"


@dataclass(frozen=True)
class JobRecord:
    """The state of a job at one moment. Times are in seconds since the epoch."""

    status: JobStatus
    submitted_at: float
    attempt: int = 0
    pid: int | None = None
    """The process ID of the supervisor."""
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    failure: FailureReport | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    """Warnings of the supervisor, which cannot be events on a full disk."""
    retries: int = 0
    """The number of restarts after failures, without progress since: see `restarts`."""
    preemptions: int = 0
    """The number of restarts after preemptions, without progress since."""
    host_losses: int = 0
    """The number of restarts after lost hosts, without progress since."""
    hangs: int = 0
    """The number of restarts after hangs, without progress since."""
    takeovers: int = 0
    """How often hosts have lost their places, in total."""
    left_out: tuple[str, ...] = ()
    """The hosts that have lost their place to a spare host, and the lost spare hosts: see `places`."""
    dropped: tuple[str, ...] = ()
    """The hosts without which the job continues, and whose places no spare host has taken."""
    blamed: tuple[str, ...] = ()
    """The hosts that one failure has been blamed on."""
    hosts: tuple[str, ...] = ()
    """The hosts with a place, in rank order, if the job has spare hosts or may continue with fewer."""
    spares: tuple[str, ...] = ()
    """The spare hosts that wait."""
    taken: tuple[str, ...] = ()
    """Which spare host took which place, for display."""
    furthest: int | None = None
    """The highest step that an earlier attempt reported."""
    cause: str = ""
    """The cause of the last failure, if it would recur: see `recurrence.cause_of`."""
    cause_step: int | None = None
    """The step after which the last failure happened."""
    ran: float = 0.0
    """Seconds for which earlier submissions of the job ran: see `continuation`."""
    resumed_at: float | None = None
    """When the current submission began to run."""
    clock: str = ""
    """The clock of all times in the record: see `steady.now_on`."""
    process: str = ""
    """The `identity` of the supervisor, because its process ID may be reused by another process."""
    resources: str = ""
    """See `Hosts.resources`."""
    metrics: Mapping[str, Sequence[float]] | None = None
    """The last, the smallest and the largest value of each metric, so that the history of thousands of jobs reads no
    events. None until the end, where no supervisor has seen it, and of too many metrics: `LARGEST_METRICS`."""
    cost_terms: Mapping[str, Any] | None = None
    """The terms of the current attempt, if its price differs from that of the request: see `caps.terms_of_attempt`."""
    cost: float | None = None
    """The cost of all attempts, in ``currency``. None until the end, and if the price is unknown."""
    currency: str = ""

    def shortened(self) -> JobRecord:
        """This record without metrics, and with a failure report that is short enough for a spare file."""
        failure = self.failure and self.failure.shortened(SPARE_SIZE // 2)
        return replace(self, failure=failure, metrics=None)

    def with_results(self, summary: Summary, request: Mapping[str, Any]) -> JobRecord:
        """This record of a job that has ended, with the metrics and the cost that the history keeps."""
        found, ranges = summary.metrics, summary.ranges
        is_small = sum(map(len, found)) <= LARGEST_METRICS
        metrics = {
            name: (*map(float, (last, *ranges.get(name, (last, last)))),) for name, last in found.items()
        }
        cost, currency = amount(self.priced(request), self.held_seconds(self.ended_at or 0.0)) or (None, "")
        return replace(self, metrics=metrics if is_small else None, cost=cost, currency=currency)

    def priced(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """``request``, with the terms of the current attempt."""
        return request if self.cost_terms is None else {**request, "cost_terms": self.cost_terms}

    def held_seconds(self, now: float) -> float:
        """Seconds for which the job has held its hosts until ``now``, or until its end."""
        end = self.ended_at or now
        return self.ran + (0.0 if self.resumed_at is None else max(0.0, end - self.resumed_at))

    def to_json(self) -> bytes:
        """The record as JSON, without fields that have their default values."""
        record = asdict(self)
        record["status"] = str(self.status)
        record["failure"] = self.failure.to_dict() if self.failure else None
        given = {name: value for name, value in record.items() if value != getattr(JobRecord, name, None)}
        return json.dumps(given, ensure_ascii=False).encode("utf-8", "backslashreplace")

    @classmethod
    def from_json(cls, data: bytes) -> JobRecord:
        """The inverse of `to_json`. Raises ValueError, which names the field, if ``data`` is not a record."""
        given = Fields(parse_json(data))
        found = {name: _FIELDS[name](given, name) for name in given.names_among(_FIELDS)}
        return cls(given.parsed("status", JobStatus), given.time("submitted_at"), **found)

    @property
    def is_damaged(self) -> bool:
        """Whether this record replaces one that cannot be read."""
        return self.reason == DAMAGED

    @property
    def names_live_process(self) -> bool:
        """Whether the supervisor is a running process of this machine."""
        return self.pid is not None and self.process != "" and identity(self.pid) == self.process


_FIELDS: dict[str, Callable[[Fields, str], Any]] = {
    **dict.fromkeys(("reason", "cause", "clock", "process", "resources", "currency"), Fields.text),
    **dict.fromkeys(("started_at", "ended_at", "resumed_at"), Fields.time),
    **dict.fromkeys(("warnings", "left_out", "dropped", "blamed", "hosts", "spares", "taken"), Fields.texts),
    **dict.fromkeys(
        ("attempt", "retries", "preemptions", "host_losses", "hangs", "takeovers"), Fields.integer
    ),
    **dict.fromkeys(("furthest", "cause_step"), Fields.integer),
    "pid": lambda given, name: given.integer(name, least=2),  # 0 and 1 are not processes to send signals to
    "ran": lambda given, name: given.number(name, least=0),
    "exit_code": lambda given, name: given.integer(name, least=-LARGEST_CODE, most=LARGEST_CODE),
    "cost": Fields.any_number,
    "cost_terms": lambda given, name: read_terms(given.mapping(name)),
    "metrics": lambda given, name: given.number_lists(name, length=3),
    "failure": lambda given, name: FailureReport.from_dict(given.mapping(name)),
}
"""Reads each field of a record that has a default."""


def read_record(read: Callable[[], bytes], folder: str) -> JobRecord:
    """The record that ``read`` returns. If it cannot be read, the record of a failed job with the reason.

    Raises FileNotFoundError if there is none, and PlatformError if the file system fails.
    """
    try:
        return JobRecord.from_json(again(read))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{folder}/{RECORD}") from None
    except (OSError, ValueError) as error:
        if is_transient(error):
            raise unreadable(f"{folder}/{RECORD}", error) from error
        what, hint = f"{folder}/{RECORD} is damaged: {_reason(error)}", _advice(folder)
        failure = FailureReport(FailureClass.PLATFORM, what, hint)
        return JobRecord(JobStatus.FAILED, time.time(), exit_code=1, failure=failure, reason=DAMAGED)


def unreadable(path: str, error: Exception) -> PlatformError:
    """The error for a file whose file system has failed for `RETRY_SECONDS`."""
    return PlatformError(
        f"{path} cannot be read: {_reason(error)}",
        hint="Its file system fails. That says nothing about the job, which may run: try again later.",
    )


def damaged_request(folder: str, why: Exception) -> PlatformError:
    """The error for a request that cannot be read."""
    if is_transient(why):
        return unreadable(f"{folder}/request.json", why)
    return PlatformError(f"{folder}/request.json is damaged: {_reason(why)}", hint=_advice(folder))


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _advice(folder: str) -> str:
    return f"Copy what you still need from {folder}, then remove it."
