"""Reads single keys from the terminal, without echo."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Callable

Read = Callable[[float], list[str]]
"""Returns the pressed keys as soon as there are any, or an empty list after this many seconds. Raises EOFError when
the terminal is gone."""

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}
_SEQUENCES = {
    **{f"\x1b{start}{end}": name for start in "[O" for end, name in _ARROWS.items()},
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    " ": "page-down",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x7f": "escape",
    "\b": "escape",
}
_LONGEST = 16
"""The most characters of an escape sequence."""


@contextlib.contextmanager
def keys() -> Iterator[Read]:
    """Make the terminal deliver each key immediately, until the body ends. Without a terminal, there are no keys."""
    try:
        descriptor = sys.stdin.fileno()
        is_terminal = os.isatty(descriptor)
    except (AttributeError, OSError, ValueError):  # closed
        is_terminal = False
    if not is_terminal:
        yield _no_keys
    elif sys.platform == "win32":
        yield _read_console
    else:
        import termios
        import tty

        before = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor, termios.TCSADRAIN)
            changed = termios.tcgetattr(descriptor)
            changed[6][termios.VSUSP] = b"\0"  # Ctrl-Z would leave the terminal as it is
            termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
            yield lambda seconds: _read(descriptor, seconds)
        finally:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def names(text: str) -> list[str]:
    """The keys in the output of a terminal: names such as ``up`` and ``enter``, and characters. Others are left out."""
    found = []
    while text:
        size = next((size for size in range(_LONGEST, 0, -1) if text[:size] in _SEQUENCES), 1)
        if text[:2] in ("\x1b[", "\x1bO") and size == 1:  # an unknown sequence: find its last character
            size = next((at + 1 for at in range(2, len(text)) if "@" <= text[at] <= "~"), len(text))
        elif size > 1 or text[0] in _SEQUENCES:
            found.append(_SEQUENCES[text[:size]])
        elif text[0].isprintable():
            found.append(text[0])
        text = text[size:]
    return found


def _no_keys(seconds: float) -> list[str]:
    time.sleep(seconds)
    return []


def _read(descriptor: int, seconds: float) -> list[str]:
    if not select.select([descriptor], [], [], seconds)[0]:
        return []
    try:
        data = os.read(descriptor, 1024)
    except OSError:
        data = b""
    if not data:
        raise EOFError
    return names(data.decode("utf-8", "replace"))


def _read_console(seconds: float) -> list[str]:
    if sys.platform == "win32":
        import msvcrt

        until = time.monotonic() + seconds
        while not msvcrt.kbhit():
            if time.monotonic() > until:
                return []
            time.sleep(0.02)
        key = msvcrt.getwch()
        if key in "\0\xe0":
            special = {"H": "up", "P": "down", "M": "right", "K": "left", "G": "home", "O": "end"}
            return [special.get(msvcrt.getwch(), "")]
        if key == "\3":
            raise KeyboardInterrupt
        return names(key)
    return []
