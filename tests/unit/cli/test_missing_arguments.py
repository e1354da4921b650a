"""Every command that lacks an argument shows an example of itself, and where the names of jobs are."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from cloudtrain.cli import cli
from cloudtrain.cli._commands import COMMANDS


def commands(group: click.Group, context: click.Context) -> Iterator[click.Context]:
    """The contexts of all commands that need an argument or an option."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        own = click.Context(command, parent=context, info_name=name)
        if isinstance(command, click.Group):
            yield from commands(command, own)
        elif any(parameter.required for parameter in command.params):
            yield own


NEEDY = [context.command_path for context in commands(cli, click.Context(cli, info_name="cloudtrain"))]


@pytest.mark.parametrize("path", NEEDY)
def test_an_example_of_the_command(path: str) -> None:
    result = CliRunner().invoke(cli, path.split()[1:], prog_name="cloudtrain")
    assert result.exit_code == 2
    example = next(line for line in result.stderr.splitlines() if line.startswith("  For example: "))
    assert f"{example} ".startswith(f"  For example: {path} ")
    words = example.split()[2:]
    assert words[1] in COMMANDS
    assert len(words) > len(path.split())


@pytest.mark.parametrize("name", ["describe", "logs", "stop", "wait", "download", "stacks"])
def test_where_the_names_of_jobs_are(name: str) -> None:
    assert CliRunner().invoke(cli, [name]).stderr.endswith("\n  Your jobs: cloudtrain list\n")
