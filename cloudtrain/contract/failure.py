"""The one record of why a job failed, the same on every platform."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any

REASON_LIMIT = 1024
"""Characters of a failure reason that SageMaker keeps."""


class FailureClass(str, Enum):
    """What kind of failure it was."""

    USER_ERROR = "user-error"
    SYNTAX_ERROR = "syntax-error"
    IMPORT_ERROR = "import-error"
    OUT_OF_MEMORY = "out-of-memory"
    MISSING_DATA = "missing-data"
    DISK_FULL = "disk-full"
    REQUIREMENTS = "requirements"
    COLLECTIVE_TIMEOUT = "collective-timeout"
    HANG = "hang"
    KILLED = "killed"
    PREEMPTED = "preempted"
    HOST_LOST = "host-lost"
    STORAGE = "storage"
    PLATFORM = "platform"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class FailureReport:
    """Which rank died first, and why.

    ``rank`` is None when no rank is to blame (a channel is missing, a host was lost).
    ``exit_code`` is what the shell would show: 128 + n for signal n.
    """

    failure_class: FailureClass
    message: str
    hint: str = ""
    rank: int | None = None
    host: str | None = None
    exit_code: int = 1
    signal: int | None = None
    exception_type: str | None = None
    traceback: str = ""
    log_tail: tuple[str, ...] = ()
    stacks: str = ""
    """Python stacks of all ranks, when the hang watchdog fired."""
    phase: str | None = None
    """The runtime's phase in which it happened."""
    time: float | None = None
    """Seconds since the epoch."""

    def summary(self) -> str:
        """One line: who, how, what.

        >>> FailureReport(FailureClass.KILLED, "", rank=1, host="algo-2", exit_code=137, signal=9).summary()
        'rank 1 on algo-2 was killed by SIGKILL'
        """
        subject = f"rank {self.rank}" if self.rank is not None else self.phase or "the job"
        if self.host:
            subject += f" on {self.host}"
        if self.failure_class == FailureClass.HANG:
            return f"{subject} hangs: {first_line(self.message)}"
        if self.signal is not None:
            ending = f"{subject} was killed by {signal_name(self.signal)}"
        elif self.exception_type:
            return f"{subject} raised {self.exception_type}: {first_line(self.message)}".rstrip(": ")
        elif self.rank is not None:
            ending = f"{subject} exited with code {self.exit_code}"
        else:
            return f"{subject}: {first_line(self.message)}"
        return f"{ending}: {first_line(self.message)}" if self.message else ending

    def reason(self) -> str:
        """Text of at most 1,024 characters: the summary, the class, then as much tail as fits."""
        head = f"{self.summary()} [{self.failure_class}]"
        if self.hint:
            head += f"\n{self.hint}"
        tail = self.traceback or "\n".join(self.log_tail)
        room = REASON_LIMIT - len(head) - 1
        return (f"{head}\n{tail[-room:]}" if tail and room > 0 else head)[:REASON_LIMIT].rstrip()

    @classmethod
    def host_lost(cls, host: str, why: str, now: float) -> FailureReport:
        """The report of a host that went away without one of its own."""
        return cls(
            failure_class=FailureClass.HOST_LOST,
            message=f"host {host} was lost: {why}",
            hint="The machine or its container went away: look at the platform's own log of that host.",
            host=host,
            phase="train",
            time=now,
        )

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        record["failure_class"] = str(self.failure_class)
        record["log_tail"] = list(self.log_tail)
        return record

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> FailureReport:
        """The inverse of `to_dict`; fields of a newer version are ignored."""
        known = {field.name for field in fields(cls)}
        values = {key: value for key, value in record.items() if key in known}
        values["failure_class"] = FailureClass(values["failure_class"])
        values["log_tail"] = tuple(values.get("log_tail", ()))
        return cls(**values)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> FailureReport:
        return cls.from_dict(json.loads(text))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
