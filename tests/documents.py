"""Runs the blocks of a Markdown page in order, as a reader would.

    ```python train.py    saved as that file; the same for any language
    ```python             run as a script
    ```console            bash runs the lines after ``$``; the lines below one are its expected output, in which
                          ``...`` matches anything

Other blocks do not run. All blocks of a page run in one folder, and later commands see the variables that earlier
ones exported.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

REPOSITORY = Path(__file__).parents[1]
TIMEOUT = 600


@dataclass(frozen=True)
class Block:
    """One fenced block. ``line`` is that of its first line on the page."""

    language: str
    file_name: str
    text: str
    line: int

    @property
    def is_followed(self) -> bool:
        """Whether a Reader saves or runs it."""
        return bool(self.file_name) or self.language in ("console", "python")


def read_blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    blocks = []
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence" and token.map:
            language, _, file_name = token.info.strip().partition(" ")
            blocks.append(Block(language, file_name, token.content, token.map[0] + 2))
    return blocks


def runs_something(page: Path) -> bool:
    """Whether a page has a block that a Reader runs."""
    return any(block.language in ("console", "python") and not block.file_name for block in read_blocks(page))


def band_of(example: str) -> tuple[float, float]:
    """The range of accuracy that the example's README states, for any number of ranks."""
    page = REPOSITORY / "examples" / example / "README.md"
    [band] = re.findall(r"between (\d+) and (\d+) %", page.read_text())
    low, high = band
    return int(low) / 100, int(high) / 100


class Reader:
    """Follows a page in ``folder``, with ``python`` on PATH, by default this one, and this cloudtrain."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self._folder = folder
        path = ":".join([os.path.dirname(python), os.path.dirname(sys.executable), os.environ["PATH"]])
        self._environ = {**os.environ, "PATH": path, "COLUMNS": "200"}
        self.printed: list[str] = []

    def follow(self, page: Path) -> int:
        """Run all commands and scripts of the page, and return their number."""
        ran = 0
        for block in read_blocks(page):
            where = f"{page.name}, line {block.line}"
            if block.file_name:
                path = self._folder / block.file_name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                script = self._folder / "snippet.py"
                script.write_text(block.text, encoding="utf-8")
                self._bash("python snippet.py", where)
                ran += 1
            elif block.language == "console":
                for command, expected in _commands(block.text):
                    printed = self._bash(command, where)
                    _compare(command, expected, printed, where)
                    self.printed.append(printed)
                    ran += 1
        return ran

    def follow_command(self, page: Path, part: str) -> str:
        """Run the only command of the page that contains ``part``, and return its output."""
        blocks = [block for block in read_blocks(page) if block.language == "console"]
        found = [(block, *pair) for block in blocks for pair in _commands(block.text) if part in pair[0]]
        assert len(found) == 1, f"{page.name} has {len(found)} commands with {part!r}"
        [(block, command, expected)] = found
        where = f"{page.name}, line {block.line}"
        printed = self._bash(command, where)
        _compare(command, expected, printed, where)
        return printed

    def end(self) -> None:
        """Stop the S3 server that a page may have started."""
        subprocess.run(["cloudtrain", "s3", "stop"], env=self._environ, check=True, timeout=TIMEOUT)

    def _bash(self, command: str, where: str) -> str:
        """Run a command, keep the variables that it exports, and return its output."""
        left = self._folder / ".environ"
        script = f"set -e\n{command}\nenv -0 > {left}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, f"{where}: {command}\nexit status {done.returncode}\n{done.stdout}"
        items = left.read_text().split("\0")
        self._environ = dict(item.split("=", 1) for item in items if item)
        return done.stdout


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block and its expected output; a ``\\`` at the end continues the line."""
    command, expected = "", ""
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, expected
            command, expected = line[2:], ""
        elif command.endswith("\\") and not expected:
            command += "\n" + line
        else:
            expected += line + "\n"
    yield command, expected


def _compare(command: str, expected: str, printed: str, where: str) -> None:
    # a stop that takes long, on a busy machine, says what it waits for
    printed = re.sub(r"job \S+ is stopping: .*\n", "", printed)
    # and a job that ran for longer than the page expects warns of what it loses
    printed = re.sub(
        r"\[cloudtrain\] the job is about to be stopped, and has no checkpoint yet.*\n", "", printed
    )
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if expected and not doctest.OutputChecker().check_output(expected, printed, options):
        raise AssertionError(f"{where}: {command}\nshould print:\n{expected}\nbut prints:\n{printed}")
