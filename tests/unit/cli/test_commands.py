"""The group of all commands."""

from __future__ import annotations

import click

from cloudtrain.cli import COMMANDS, cli


def test_commands_are_listed_after_their_modules_are_imported() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        assert cli.get_command(context, name) is not None
    assert cli.list_commands(context) == [*COMMANDS]
