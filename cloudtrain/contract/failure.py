"""The record of why a job failed, the same on every platform."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from enum import Enum
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain._system.patterns import pattern
from cloudtrain._system.signals import LINUX, LINUX_NUMBERS
from cloudtrain.contract.documents import Fields, parse_json

REASON_LIMIT = 1024
"""Characters of a failure reason that SageMaker keeps."""

LARGEST_CODE = 2**32
LARGEST_SIGNAL = 64

_WHOLE_JOB = "the job"
_REASON = pattern(
    r"(?:rank (?P<rank>\d{1,9})|(?P<phase>the job|[\w-]+))(?: on (?P<host>\S+?))?"
    r"(?: hangs: (?P<hangs>.*?)"
    r"| was killed by (?P<signal>SIG\w+|signal \d{1,2})(?:: (?P<killed>.*?))?"
    r"| raised (?P<type>[\w.]+)(?:: (?P<raised>.*?))?"
    r"| exited with code (?P<code>-?\d{1,9})(?:: (?P<exited>.*?))?"
    r"|: (?P<other>.*?))"
    r" \[(?P<failure_class>[a-z-]+)\]",
    re.DOTALL,
)
"""The first line of a reason: `FailureReport.summary` and the class."""
_MESSAGES = ("hangs", "killed", "raised", "exited", "other")


class FailureClass(str, Enum):
    """The kind of a failure."""

    USER_ERROR = "user-error"
    SYNTAX_ERROR = "syntax-error"
    IMPORT_ERROR = "import-error"
    OUT_OF_MEMORY = "out-of-memory"
    MISSING_DATA = "missing-data"
    DISK_FULL = "disk-full"
    REQUIREMENTS = "requirements"
    GPU_FAULT = "gpu-fault"
    GPU_SETUP = "gpu-setup"
    COLLECTIVE_TIMEOUT = "collective-timeout"
    HANG = "hang"
    KILLED = "killed"
    PREEMPTED = "preempted"
    TIME_LIMIT = "time-limit"
    HOST_LOST = "host-lost"
    STORAGE = "storage"
    UPLOAD = "upload"
    PLATFORM = "platform"

    def __str__(self) -> str:
        return self.value


FINAL_CODE = 124
"""The exit code of a host whose runtime has ended the job at a limit, like that of the program ``timeout``. The job is
not restarted."""


@dataclass(frozen=True)
class FailureReport:
    """Which rank failed first, and why.

    ``rank`` is None when no rank caused the failure (a channel is missing, a host was lost).
    ``exit_code`` is the code that a shell would report: 128 + n for signal n.
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
    """Python stacks of all ranks, if the hang watchdog fired."""
    memory: str = ""
    """Lines about the memory of the host and its ranks in the last minute, if the job ran out of memory."""
    phase: str | None = None
    """The phase of the runtime in which the job failed."""
    time: float | None = None
    """Seconds since the epoch."""

    def summary(self) -> str:
        """One line: which rank, how it ended, and why.

        >>> FailureReport(FailureClass.KILLED, "", rank=1, host="algo-2", exit_code=137, signal=9).summary()
        'rank 1 on algo-2 was killed by SIGKILL'
        """
        subject = f"rank {self.rank}" if self.rank is not None else self.phase or _WHOLE_JOB
        if self.host:
            subject += f" on {self.host}"
        if self.failure_class == FailureClass.HANG:
            return f"{subject} hangs: {first_line(self.message)}"
        if self.signal is not None:
            ending = f"{subject} was killed by {signal_name(self.signal)}"
        elif self.exception_type:
            ending = f"{subject} raised {self.exception_type}"
        elif self.rank is not None:
            ending = f"{subject} exited with code {self.exit_code}"
        else:
            return f"{subject}: {first_line(self.message)}"
        cause = first_line(without_user_code(self.exception_type, self.message))
        return f"{ending}: {cause}" if cause else ending

    def reason(self) -> str:
        """Text of at most 1,024 characters: summary and class, the hint, then as much of the tail as fits.

        `from_reason` parses it.
        """
        summary, rest = self.summary(), f" [{self.failure_class}]" + (f"\n{self.hint}" if self.hint else "")
        space = REASON_LIMIT - len(rest)
        head = (summary if len(summary) <= space else f"{summary[: space - 1]}…") + rest
        tail = self.traceback or "\n".join(self.log_tail)
        space = REASON_LIMIT - len(head) - 2
        return (f"{head}\n\n{tail[-space:]}" if tail and space > 0 else head)[:REASON_LIMIT].rstrip()

    @classmethod
    def from_reason(cls, text: str) -> FailureReport | None:
        """Parse the text of `reason`, which may be cut; None for any other text."""
        if len(text) > REASON_LIMIT:
            return None
        head, _, tail = text.partition("\n\n")
        line, _, hint = head.partition("\n")
        match = _REASON.fullmatch(line)
        if match is None or match["failure_class"] not in FailureClass.__members__.values():
            return None
        number = _signal_number(match["signal"]) if match["signal"] else None
        return cls(
            failure_class=FailureClass(match["failure_class"]),
            message=next((match[key] for key in _MESSAGES if match[key] is not None), ""),
            hint=hint,
            rank=int(match["rank"]) if match["rank"] else None,
            host=match["host"],
            exit_code=int(match["code"]) if match["code"] else 1 if number is None else 128 + number,
            signal=number,
            exception_type=match["type"],
            traceback=tail if match["type"] else "",
            log_tail=() if match["type"] or not tail else tuple(tail.split("\n")),
            phase=None if match["phase"] in (None, _WHOLE_JOB) else match["phase"],
        )

    @classmethod
    def host_lost(cls, host: str, why: str, now: float) -> FailureReport:
        """The report of a host that disappeared without writing one."""
        return cls(
            failure_class=FailureClass.HOST_LOST,
            message=f"host {host} was lost: {why}",
            hint="The machine or its container disappeared: see the platform's own log of that host.",
            host=host,
            phase="train",
            time=now,
        )

    def shortened(self, size: int) -> FailureReport:
        """The same report, without parts of its long texts if `to_json` would have more than ``size`` bytes."""
        report = self
        limit = size // 8  # six texts, in which a character may take several bytes
        while limit and len(report.to_json().encode("utf-8", "backslashreplace")) > size:
            tail = "\n".join(report.log_tail)[-limit:]
            report = replace(
                report,
                message=report.message[:limit],
                hint=report.hint[:limit],
                traceback=report.traceback[-limit:],
                stacks=report.stacks[:limit],
                memory=report.memory[:limit],
                log_tail=tuple(tail.split("\n")) if tail else (),
            )
            limit //= 2
        return report

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        record["failure_class"] = str(self.failure_class)
        record["log_tail"] = list(self.log_tail)
        return record

    @classmethod
    def from_dict(cls, record: Any) -> FailureReport:
        """The inverse of `to_dict`. Ignores fields of a newer version.

        Raises ValueError, which names the field, if a value does not have the right type.
        """
        given = Fields(record)
        return cls(
            failure_class=given.parsed("failure_class", FailureClass),
            message=given.text("message"),
            hint=given.text("hint", ""),
            rank=given.integer("rank", None),
            host=given.text("host", None),
            exit_code=given.integer("exit_code", 1, least=-LARGEST_CODE, most=LARGEST_CODE),
            signal=given.integer("signal", None, least=1, most=LARGEST_SIGNAL),
            exception_type=given.text("exception_type", None),
            traceback=given.text("traceback", ""),
            log_tail=given.texts("log_tail", ()),
            stacks=given.text("stacks", ""),
            memory=given.text("memory", ""),
            phase=given.text("phase", None),
            time=given.time("time", None),
        )

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> FailureReport:
        """The inverse of `to_json`. Raises ValueError for any other text."""
        return cls.from_dict(parse_json(text))


def signal_name(number: int) -> str:
    return LINUX.get(number, f"signal {number}")


def _signal_number(name: str) -> int | None:
    """The inverse of `signal_name`; None for a name that Linux does not define."""
    return int(name.split()[1]) if name.startswith("signal ") else LINUX_NUMBERS.get(name)


def first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def without_user_code(exception_type: str | None, message: str) -> str:
    """Only the line with the cause, if the message begins with the traceback that TensorFlow adds in `tf.function`."""
    if first_line(message) != "in user code:":
        return message
    lines = [line.strip() for line in message.strip().split("\n")]
    prefix = f"{exception_type}: "
    named = [line for line in lines if line.startswith(prefix)]
    return named[-1][len(prefix) :] if named else lines[-1]
