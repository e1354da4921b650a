"""The group of all commands."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cloudtrain.cli import cli
from cloudtrain.cli._commands import COMMANDS, SECTIONS, short_help
from cloudtrain.contract import JobStatus
from cloudtrain.platforms import JobDescription
from cloudtrain.testing import FakePlatform


def test_commands_are_listed_with_the_first_sentence_of_their_help() -> None:
    context = click.Context(cli)
    for name, text in (pair for commands in SECTIONS.values() for pair in commands.items()):
        command = cli.get_command(context, name)
        assert command is not None
        assert short_help(text) == command.get_short_help_str(200), name
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


def test_a_slow_stop_names_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Patient(FakePlatform):
        """Its job has stopped when the command has said that it waits."""

        looks = 0

        def describe(self, job_name: str) -> JobDescription:
            self.looks += 1
            status = JobStatus.STOPPED if self.looks > 3 else JobStatus.STOPPING
            return JobDescription(job_name, "fake", status, 0.0)

        def stop(self, job_name: str) -> None:
            """It has been stopped."""

    platform = Patient()
    monkeypatch.setattr("cloudtrain.job.get_platform", lambda name: platform)
    monkeypatch.setattr("cloudtrain.cli.stop.QUIET_SECONDS", 0.0)
    done = CliRunner().invoke(cli, ["stop", "toy", "--platform", "fake", "--json"])
    assert json.loads(done.stdout)["status"] == "Stopped"
    assert "job toy is stopping: its ranks have their stop_grace to exit" in done.stderr
