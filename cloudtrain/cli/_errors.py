"""Reports errors on the command line, and cleans up when a signal ends it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

from cloudtrain.cli._output import notify
from cloudtrain.contract.text import escape_text
from cloudtrain.errors import CloudtrainError, InvalidJob, InvalidSource

USAGE_ERROR = 2
INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 + SIGINT."""

END_SIGNALS = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGTERM") if hasattr(signal, name))
"""The signals of a closed terminal and of ``kill``. By default, Python ends without removing temporary files."""
AGAIN_SECONDS = 0.05
"""Seconds after which a signal is sent again that arrived where Python ignores exceptions."""


class Ended(BaseException):
    """One of `END_SIGNALS` arrived."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _end(number: int, _frame: FrameType | None) -> None:
    raise Ended(number)


def _end_again(ignored: Any) -> None:
    """Send the signal again if it arrived where Python ignores exceptions, such as in a finalizer or an import."""
    if isinstance(ignored.exc_value, (Ended, KeyboardInterrupt)):
        number = ignored.exc_value.number if isinstance(ignored.exc_value, Ended) else signal.SIGINT
        # later, because exceptions are ignored here too
        timer = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()
    else:
        sys.__unraisablehook__(ignored)


@contextmanager
def cleaning_up() -> Iterator[None]:
    """Let SIGHUP and SIGTERM unwind the command, as Ctrl-C does, before they end the process."""
    taken = [
        number for number in END_SIGNALS if signal.getsignal(number) == signal.SIG_DFL
    ]  # not under nohup
    for number in taken:
        signal.signal(number, _end)
    sys.unraisablehook = _end_again
    try:
        yield
    except Ended as end:
        signal.signal(end.number, signal.SIG_DFL)
        os.kill(os.getpid(), end.number)
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def written() -> Iterator[None]:
    """Turn output that cannot be written, such as to a full disk, into a message on stderr and exit status 1.

    After the end of the reader, such as ``head``, nothing is reported.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it is closed: the next opened file would get its descriptor
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the end
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not _is_unwritable(sys.stdout):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest when it exits
        if error.errno != errno.EPIPE:
            notify("Error", f"the output cannot be written: {error.strerror}")
        sys.exit(1)


def _is_unwritable(stream: TextIO) -> bool:
    """Whether another line cannot be written either."""
    try:
        stream.write("\n")
        stream.flush()
    except OSError:
        return True
    return False


@contextmanager
def reported() -> Iterator[None]:
    """Turn cloudtrain's errors into a message on stderr (with ``--json``: JSON on stdout) and an exit status."""
    try:
        yield
    except CloudtrainError as error:
        if "--json" in sys.argv:
            import json

            record = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
            sys.stdout.write(json.dumps({"error": record}) + "\n")
        else:
            notify("Error", escape_text(str(error)))
        sys.exit(USAGE_ERROR if isinstance(error, (InvalidJob, InvalidSource)) else 1)
