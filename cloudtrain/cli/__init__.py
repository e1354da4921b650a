"""The ``cloudtrain`` command: words and pictures for people, over the same API that Python has."""

from __future__ import annotations

from importlib import import_module

import click

from cloudtrain.cli._errors import reported

COMMANDS = (
    "submit",
    "list",
    "describe",
    "logs",
    "metrics",
    "timeline",
    "wait",
    "stop",
    "preempt",
    "download",
    "checkpoints",
    "doctor",
    "check",
    "image",
    "s3",
    "clean",
    "completion",
)
"""Each stands in the module of its name, as ``command``; it is imported when it is called."""


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"cloudtrain.cli.{name}").command
        return command


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="cloudtrain", message="cloudtrain %(version)s")
def cli() -> None:
    """Submit distributed training jobs to any cluster.

    \b
    cloudtrain submit train.py -- --epochs 5    run a script
    cloudtrain submit train.yaml                run a job file
    cloudtrain list                             see all jobs
    """


def main() -> None:
    """The command line's entry point."""
    with reported():
        cli(prog_name="cloudtrain")


__all__ = ["cli", "main"]
