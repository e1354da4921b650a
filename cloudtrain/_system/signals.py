"""Signals. Reports use Linux's numbers, because jobs run on Linux, and any system may read a report."""

from __future__ import annotations

import contextlib
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # every rank imports this module, and few need typing
    from collections.abc import Iterable, Iterator
    from typing import Any, Callable

_NAMES = (
    "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG"
    " XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
)
LINUX = {number: f"SIG{name}" for number, name in enumerate(_NAMES.split(), start=1)}
"""The names of Linux's signals, by number (signal(7)). macOS numbers some of them differently; Windows lacks most."""
LINUX_NUMBERS = {name: number for number, name in LINUX.items()}

SIGHUP, SIGQUIT, SIGKILL = (LINUX_NUMBERS[name] for name in ("SIGHUP", "SIGQUIT", "SIGKILL"))
"""These have the same numbers on every system that has them."""


def linux_number(number: int) -> int:
    """The number that Linux gives to the signal that this system calls ``number``.

    >>> linux_number(9)
    9
    """
    try:
        return LINUX_NUMBERS.get(signal.Signals(number).name, number)
    except ValueError:
        return number


def own_number(name: str) -> int | None:
    """This system's number of a signal; None if it lacks the signal."""
    return signal.Signals[name].value if name in signal.Signals.__members__ else None


def handle(name: str, handler: Callable[[int, Any], object] | signal.Handlers) -> None:
    """Call ``handler`` for this signal from now on. Does nothing on a system that lacks it."""
    number = own_number(name)
    if number is not None:
        signal.signal(number, handler)


ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
"""The signals that request the end of a process: from kill(1) or a scheduler, from Ctrl-C, from a closed terminal."""


@contextlib.contextmanager
def blocked(numbers: Iterable[int]) -> Iterator[None]:
    """Block signals during the context, also in child processes that it starts, which have to `unblock` them."""
    block(numbers)
    try:
        yield
    finally:
        unblock(numbers)


if sys.platform == "win32":

    def unblock(numbers: Iterable[int]) -> None:
        """Does nothing: Windows blocks no signals."""

    def block(numbers: Iterable[int]) -> None:
        """Does nothing: Windows blocks no signals."""

else:

    def unblock(numbers: Iterable[int]) -> None:
        """Allow blocked signals to be delivered."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def block(numbers: Iterable[int]) -> None:
        """Block signals until `unblock`, also in child processes."""
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
