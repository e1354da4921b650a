"""A command reads the config file once: what it checks and what it submits is the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cloudtrain.cli import cli

_opened: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        _opened.append(arguments[0])


sys.addaudithook(_note)


@pytest.mark.parametrize(
    "command",
    [
        ["submit", "train.py", "--dry-run"],
        ["submit", "train.py", "--check"],
        ["submit", "train.py", "--platform", "nosuch", "--check"],
        ["doctor", "train.py"],
        ["doctor", "train.py", "--platform", "nosuch"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_the_config_file_is_read_once(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    config = tmp_path / "config.yaml"
    config.write_text("max_run: 60\n")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    monkeypatch.chdir(tmp_path)
    _opened.clear()
    result = CliRunner().invoke(cli, command)
    assert result.exit_code in (0, 1), result.output
    assert _opened.count(str(config)) == 1
