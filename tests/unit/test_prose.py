"""``scripts/prose``: which texts it checks, and which it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/prose"


def prose(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *options, path], capture_output=True, text=True, check=False, timeout=240
    )


def found(tmp_path: Path, name: str, text: str) -> list[str]:
    """The line and the phrase of each finding."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    lines = prose(path).stdout.splitlines()
    return [line.removeprefix(f"{path}:").partition(" -> ")[0] for line in lines]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# begin anew\n", ["1: anew"]),  # prose: ok
        ('"""Nobody\nknows."""\n', ["1: Nobody"]),  # prose: ok
        ('"""First line.\n\nIt stands here.\n"""\n', ["3: stands"]),  # prose: ok
        ("x = 1\nraise ValueError(f'{x} is no number')\n", ["2: is no"]),  # prose: ok
        ("def test_goes_on():\n    pass\n", ["1: goes on"]),  # prose: ok
        ("def test_it_is_frozen():\n    pass\n", ["1: test it is frozen"]),  # prose: ok
        ("def test_a_rule_says_why():\n    pass\n", ["1: test a rule says why"]),  # prose: ok
        ("# a comment comes late, and the reason is said\n", ["1: comes late", "1: is said"]),  # prose: ok
        ('"""What it does."""\n', ["1: What"]),  # prose: ok
        ("# split over\n# lines: goes\n# on\n", ["2: goes on"]),  # prose: ok
    ],
)
def test_finds_phrases_in_the_prose_of_python(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert found(tmp_path, "module.py", text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "position = file.tell()\n",
        '"""Like ``file.tell()`` and `tell`."""\n',
        "kind = {'word': 1}['word']\n",
        '"""There is no limit; it is no longer than that."""\n',
        '"""The position.\n\nWhat if it is None?\n"""\n',
        "# as AWS says: anew  # prose: ok\n",
    ],
)
def test_leaves_code_and_allowed_lines_alone(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "module.py", text) == []


def test_reads_scripts_inside_strings_as_code(tmp_path: Path) -> None:
    text = 'SCRIPT = """\nimport io\n# start anew\nprint(io.StringIO().tell())\n"""\n'  # prose: ok
    assert found(tmp_path, "module.py", text) == ["3: anew"]  # prose: ok


def test_reads_markdown_but_not_its_code(tmp_path: Path) -> None:
    text = (
        "It tells `tell` the [truth](tell.md).\n\n"  # prose: ok
        "```console\n$ tell\n```\n\n"
        "```python\ntell()  # told\n```\n"  # prose: ok
    )
    assert found(tmp_path, "page.md", text) == ["1: tells", "8: told"]  # prose: ok


def test_reads_comments_and_messages_of_shell_scripts(tmp_path: Path) -> None:
    text = '#!/bin/sh\n# start anew\ntell me\nsay "whoever"\n'  # prose: ok
    assert found(tmp_path, "script", text) == ["2: anew", "4: whoever"]  # prose: ok


def test_exit_status_and_help(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("Plain text.\n")
    assert prose(path).returncode == 0
    path.write_text("Begin anew.\n")  # prose: ok
    assert prose(path).returncode == 1
    assert "prose_words.txt" in prose(path, "--help").stdout
