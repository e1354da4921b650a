"""What can be known of a job before it is submitted: checks, made all at once, and what they found."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum

from cloudtrain.errors import CloudtrainError

TIMEOUT = 30.0


class Outcome(str, Enum):
    """How a check ended. Only ``FAILED`` says that the job would fail."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It could not be made: the caller may not ask, or nobody answers."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """What a check found, in a sentence, and what to do about it."""

    outcome: Outcome
    what: str
    hint: str = ""

    @classmethod
    def of(cls, error: CloudtrainError) -> Finding:
        """The failure that ``error`` tells of."""
        return cls(Outcome.FAILED, error.message, error.hint)


Check = Callable[[], Finding]
"""A question whose answer may take a while. A `CloudtrainError` that it raises is a failure."""


def run_checks(checks: Mapping[str, Check], timeout: float = TIMEOUT) -> Iterator[tuple[str, Finding]]:
    """Make all checks at the same time; their names and findings in the order of ``checks``.

    Args:
        timeout: seconds after which a check without an answer is ``UNKNOWN``. It is left to itself: its thread
            does not keep the process alive.
    """
    deadline = time.monotonic() + timeout
    started = [(name, _start(check)) for name, check in checks.items()]
    for name, future in started:
        try:
            yield name, future.result(max(0.0, deadline - time.monotonic()))
        except CloudtrainError as error:
            yield name, Finding.of(error)
        except TimeoutError:
            yield name, Finding(Outcome.UNKNOWN, f"no answer in {timeout:g} s")


def _start(check: Check) -> Future[Finding]:
    future: Future[Finding] = Future()

    def run() -> None:
        try:
            future.set_result(check())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
