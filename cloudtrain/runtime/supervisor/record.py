"""The record of a job, which its supervisor keeps in ``state.json``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace

from cloudtrain._dataclass import dataclass
from cloudtrain._system.processes import identity
from cloudtrain._system.retries import again, is_transient
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.contract.failure import LARGEST_CODE
from cloudtrain.errors import PlatformError
from cloudtrain.storage.disk_reserve import SPARE_SIZE

STOPPED_BY_USER = "stopped by the user"
SIGNAL = "ended by a signal from outside"
INTERRUPT = "interrupted by SIGINT: by Ctrl-C or scancel --signal=INT, for example"
HANGUP = "ended by SIGHUP: its terminal or session was closed, for example"
DAMAGED = "its record is damaged"

RECORD = "state.json"
LARGEST = 64 << 20
"""In bytes: how much is read of a file that only the client and the supervisor write."""


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
    """How often the job has restarted after a failure, without progress since: see `restarts`."""
    preemptions: int = 0
    """The same after a preemption."""
    host_losses: int = 0
    """The same after the loss of a host."""
    hangs: int = 0
    """The same after a hang."""
    takeovers: int = 0
    """How often hosts have lost their places, in all."""
    left_out: tuple[str, ...] = ()
    """The hosts that have lost their place to a spare, or were lost as one: see `places`."""
    dropped: tuple[str, ...] = ()
    """The hosts without which the job continues: no spare has their places."""
    blamed: tuple[str, ...] = ()
    """The hosts that one failure has been blamed on."""
    hosts: tuple[str, ...] = ()
    """Of a job with spare hosts, or that may continue with fewer: those that have a place, in rank order."""
    spares: tuple[str, ...] = ()
    """Those that wait."""
    taken: tuple[str, ...] = ()
    """Which spare host took which place, for display."""
    furthest: int | None = None
    """The highest step that an earlier attempt reported."""
    cause: str = ""
    """The cause of the last failure, if it would happen again: see `restarts.cause_of`."""
    cause_step: int | None = None
    """The step after which it happened."""
    ran: float = 0.0
    """Seconds for which earlier submissions of the job ran: see `continuation`."""
    resumed_at: float | None = None
    """When the present submission began to run."""
    clock: str = ""
    """The clock that the times are from: see `steady.now_on`."""
    process: str = ""
    """The `identity` of the supervisor: its process ID may later be that of another process."""
    resources: str = ""
    """See `Hosts.resources`."""

    def shortened(self) -> JobRecord:
        """The same record, without parts of the failure report if it would not fit into a spare file."""
        return replace(self, failure=self.failure and self.failure.shortened(SPARE_SIZE // 2))

    def to_json(self) -> bytes:
        record = asdict(self)
        record["status"] = str(self.status)
        record["failure"] = self.failure.to_dict() if self.failure else None
        return json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace")

    @classmethod
    def from_json(cls, data: bytes) -> JobRecord:
        """The inverse of `to_json`. Raises ValueError, which names the field, if ``data`` is not a record."""
        record = parse_json(data)
        given = Fields(record)
        return cls(
            status=given.parsed("status", JobStatus),
            submitted_at=given.time("submitted_at"),
            attempt=given.integer("attempt", 0),
            pid=given.integer("pid", None, least=2),  # 0 and 1 are not processes to send signals to
            process=given.text("process", ""),
            resources=given.text("resources", ""),
            started_at=given.time("started_at", None),
            ended_at=given.time("ended_at", None),
            exit_code=given.integer("exit_code", None, least=-LARGEST_CODE, most=LARGEST_CODE),
            failure=FailureReport.from_dict(record["failure"]) if "failure" in given else None,
            reason=given.text("reason", ""),
            warnings=given.texts("warnings", ()),
            retries=given.integer("retries", 0),
            preemptions=given.integer("preemptions", 0),
            host_losses=given.integer("host_losses", 0),
            hangs=given.integer("hangs", 0),
            takeovers=given.integer("takeovers", 0),
            left_out=given.texts("left_out", ()),
            dropped=given.texts("dropped", ()),
            blamed=given.texts("blamed", ()),
            hosts=given.texts("hosts", ()),
            spares=given.texts("spares", ()),
            taken=given.texts("taken", ()),
            furthest=given.integer("furthest", None),
            cause=given.text("cause", ""),
            cause_step=given.integer("cause_step", None),
            ran=given.number("ran", 0.0, least=0),
            resumed_at=given.time("resumed_at", None),
            clock=given.text("clock", ""),
        )

    @property
    def is_damaged(self) -> bool:
        """Whether this replaces a record that cannot be read."""
        return self.reason == DAMAGED

    @property
    def names_live_process(self) -> bool:
        """Whether the supervisor is a process of this machine, and runs."""
        return self.pid is not None and self.process != "" and identity(self.pid) == self.process


def read_record(read: Callable[[], bytes], folder: str) -> JobRecord:
    """The record that ``read`` returns. If it cannot be read, that of a failed job, which has the reason.

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
    """The error for a file whose file system fails, and has for `RETRY_SECONDS`."""
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
