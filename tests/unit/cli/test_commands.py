"""The group of all commands."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cloudtrain.cli import COMMANDS, cli


def test_commands_are_listed_after_their_modules_are_imported() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        assert cli.get_command(context, name) is not None
    assert cli.list_commands(context) == [*COMMANDS]


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["sumbit", "train.py"], "No such command 'sumbit'. Did you mean 'submit'?"),
        (["my train.py", "--lr", "1"], "To submit the file: cloudtrain submit 'my train.py'"),
        (["start", "my train.py"], "Known: check, checkpoints, clean"),
        (["--sumbit"], "No such option"),
    ],
)
def test_an_unknown_command_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], advice: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my train.py").touch()
    refused = CliRunner().invoke(cli, command, prog_name="cloudtrain")
    assert refused.exit_code == 2
    assert advice in refused.output
