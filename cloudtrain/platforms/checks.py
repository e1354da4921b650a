"""Runs checks of a job concurrently before it is submitted, and collects their findings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from cloudtrain._dataclass import dataclass
from cloudtrain._secrets.urls import hide_credentials
from cloudtrain.errors import CloudtrainError

if TYPE_CHECKING:
    from concurrent.futures import Future

TIMEOUT = 30.0

MISSING_MODULES = (
    "Your own modules: pack their folder, with --source-dir. Published packages: add to requirements.txt."
)
"""A hint for modules that neither the source nor the interpreter has. It names no package, because a module may be the
user's own, and a stranger can publish a package with its name."""


class CheckStatus(str, Enum):
    """The result of a check. Only ``FAILED`` means that the job would fail."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The check was not possible: the caller lacks a permission, or there was no response."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """The result of a check, a sentence about it, and a hint."""

    status: CheckStatus
    what: str
    hint: str = ""

    def __post_init__(self) -> None:
        for name in ("what", "hint"):  # they quote URLs
            object.__setattr__(self, name, hide_credentials(getattr(self, name)))

    @classmethod
    def of(cls, error: CloudtrainError) -> Finding:
        """A failed check, from the error that it raised."""
        return cls(CheckStatus.FAILED, error.message, error.hint)


ok = partial(Finding, CheckStatus.OK)
warning = partial(Finding, CheckStatus.WARNING)
failed = partial(Finding, CheckStatus.FAILED)
unknown = partial(Finding, CheckStatus.UNKNOWN)

Check = Callable[[], Finding]
"""A check, which may take a while. If it raises a `CloudtrainError`, it has failed."""

T = TypeVar("T")


class Once(Generic[T]):
    """A fact that several checks need. The first one finds it; if ``find`` raises an error, each of them raises it."""

    def __init__(self, find: Callable[[], T]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._found: list[T] = []
        self._error: CloudtrainError | None = None

    def __call__(self) -> T:
        with self._lock:
            if not self._found and not self._error:
                try:
                    self._found.append(self._find())
                except CloudtrainError as error:
                    self._error = error
        if self._error:
            raise self._error
        return self._found[0]


def run_checks(checks: Mapping[str, Check], timeout: float = TIMEOUT) -> Iterator[tuple[str, Finding]]:
    """Run all checks concurrently. Yields their names and findings in the order of ``checks``.

    Args:
        timeout: seconds after which an unfinished check is ``UNKNOWN``. Its thread continues, but does not keep the
            process alive.
    """
    from concurrent.futures import TimeoutError as FutureTimeout  # on Python 3.10 not the built-in one

    deadline = time.monotonic() + timeout
    started = [(name, _start(check)) for name, check in checks.items()]
    for name, future in started:
        try:
            yield name, future.result(max(0.0, deadline - time.monotonic()))
        except CloudtrainError as error:
            yield name, Finding.of(error)
        except FutureTimeout:
            yield name, unknown(f"no answer in {timeout:g} s")


def _start(check: Check) -> Future[Finding]:
    from concurrent.futures import Future

    future: Future[Finding] = Future()

    def run() -> None:
        try:
            future.set_result(check())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
