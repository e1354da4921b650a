"""A real terminal for a program: its keyboard, its size, and the screen as a person sees it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyte


class Terminal:
    """A program in a pseudoterminal. Its output is drawn by pyte."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], columns: int = 120, lines: int = 40
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.output = b""
        self._master, self._slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self._slave)
        values = {"TERM": "xterm-256color", **env}
        for name in ("COLUMNS", "LINES"):
            values.pop(name, None)
        tty = self._slave  # of which Ctrl-C reaches the program
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], stdin=tty, stdout=tty, stderr=tty, env=values
        )

    @property
    def text(self) -> str:
        """The screen, without blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def is_restored(self) -> bool:
        """Whether the terminal has its modes again, the normal screen and the cursor."""
        last = max(b"\x1b[?1049h", b"\x1b[?1049l", key=self.output.rfind)
        cursor = max(b"\x1b[?25h", b"\x1b[?25l", key=self.output.rfind)
        modes = termios.tcgetattr(self._slave) == self.before
        return modes and last.endswith(b"l") and cursor.endswith(b"h")

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_until(self, is_true: Callable[[str], object], seconds: float = 120.0) -> str:
        """Draw until the screen is as described. Returns its text."""
        until = time.monotonic() + seconds
        while not is_true(self.text):
            assert time.monotonic() < until, f"the screen after {seconds} s:\n{self.text}"
            self._draw(0.1)
        return self.text

    def wait_for(self, *texts: str, seconds: float = 120.0) -> str:
        return self.wait_until(lambda shown: all(text in shown for text in texts), seconds)

    def wait_for_end(self, seconds: float = 120.0) -> int:
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it does not end; the screen:\n{self.text}"
            self._draw(0.1)
        self._draw(0.1)
        return self.process.returncode

    def _draw(self, seconds: float) -> None:
        while select.select([self._master], [], [], seconds)[0]:
            data = os.read(self._master, 1 << 16)
            self.output += data
            self._stream.feed(data)
            seconds = 0.0

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in (self._master, self._slave):
            os.close(descriptor)


@contextlib.contextmanager
def terminal(
    command: Sequence[str], env: Mapping[str, str], columns: int = 120, lines: int = 40
) -> Iterator[Terminal]:
    found = Terminal(command, env, columns, lines)
    try:
        yield found
    finally:
        found.close()
