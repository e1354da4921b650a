"""Questions of the runtime to a rank that hangs: which collectives is it in?

The Python stacks of such a rank often end in a call that waits for a GPU. Its main thread executes no Python, but the
call lets other threads run. One of them waits for a byte in a named pipe, and answers with a text in a file. Both are
next to the file of the rank's `heartbeat`.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from typing import Callable

from cloudtrain._system.files import READ_REGULAR, read_regular
from cloudtrain.observe.heartbeat import VARIABLE

LARGEST = 1 << 16
"""Bytes of an answer."""

_served: set[str] = set()
"""The pipes that this process waits at."""


def answer_with(describe: Callable[[], str]) -> None:
    """Answer every question of the runtime with the text of ``describe``, from a thread. Does nothing outside a job."""
    path = os.environ.get(VARIABLE)
    if path is None or path in _served:
        return
    from cloudtrain._system.descriptors import open_named_pipe, set_blocking

    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_pipe(path))  # of an earlier attempt
        pipe = open_named_pipe(_pipe(path))
        set_blocking(pipe, True)
    except OSError:  # a full disk, or a file system without pipes: the report has the stacks only
        return
    _served.add(path)
    threading.Thread(
        target=_serve, args=(pipe, _answer(path), describe), name="cloudtrain-inquiry", daemon=True
    ).start()


def ask(heartbeat_path: str) -> bool:
    """Query the rank with this heartbeat file. Returns whether it may answer."""
    with contextlib.suppress(OSError):
        os.unlink(_answer(heartbeat_path))
    try:
        pipe = os.open(_pipe(heartbeat_path), READ_REGULAR | os.O_WRONLY)
    except OSError:  # it has no collectives, or it has ended
        return False
    try:
        return stat.S_ISFIFO(os.fstat(pipe).st_mode) and os.write(pipe, b"?") == 1
    except OSError:
        return False
    finally:
        os.close(pipe)


def answer(heartbeat_path: str) -> str:
    """The rank's answer; empty if there is none yet."""
    try:
        return read_regular(_answer(heartbeat_path), LARGEST).decode(errors="replace")
    except OSError:
        return ""


def _serve(pipe: int, path: str, describe: Callable[[], str]) -> None:
    while os.read(pipe, 1):
        try:
            text = describe()
        except Exception as error:  # in any state of the rank
            text = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            with open(f"{path}.new", "w", errors="backslashreplace") as file:
                file.write(text[: LARGEST // 4])
            os.replace(f"{path}.new", path)


def _pipe(heartbeat_path: str) -> str:
    return f"{heartbeat_path}.asked"


def _answer(heartbeat_path: str) -> str:
    return f"{heartbeat_path}.answer"
