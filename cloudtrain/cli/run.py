"""``cloudtrain run`` as a command of click: its help, and its facts about this installation."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from cloudtrain.cli._run import run
from cloudtrain.cli._run_flags import SECTIONS
from cloudtrain.cli._run_options import parse
from cloudtrain.errors import InvalidJob

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class _RunCommand(click.Command):
    """Flags are not parsed by click: long ones may have one dash, and all arguments after the program are its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["arguments"] = list(args)
        return []

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        if not incomplete.startswith("-") or _program(context.params["arguments"]):
            return [CompletionItem(incomplete, type="file")]
        known = [
            name
            for flags in SECTIONS.values()
            for flag in flags
            if flag.effect.value != "refused"
            for name in flag.spellings
        ]
        return [CompletionItem(name) for name in known if name.startswith(incomplete)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, flags in SECTIONS.items():
            rows = [
                (f"{', '.join(flag.spellings)} {flag.metavar}".strip(), _plain(flag.text))
                for flag in flags
                if flag.effect.value != "refused"
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _program(arguments: list[str]) -> list[str]:
    """The program in an unfinished command line; empty if it has none yet."""
    try:
        return parse(arguments).program
    except InvalidJob:
        return []


@click.command(
    "run",
    cls=_RunCommand,
    options_metavar="[FLAGS]",
    short_help="Run a program as several ranks, in the foreground.",
)
def command(arguments: list[str]) -> None:
    """Run PROGRAM as several ranks, in the foreground, with nothing to configure: on this machine, or through ssh.

    \b
      cloudtrain run -np 4 python train.py --epochs 5
      cloudtrain run -np 4 -H localhost:4 python -m package.train
      cloudtrain run -np 8 -H server1:4,server2:4 python train.py
      cloudtrain run -np 2 --mpi -x NCCL_DEBUG=INFO ./train.sh
      cloudtrain run -np 1 python serve.py : -np 2 python train.py

    The flags are those of horovodrun and mpirun. Everything from PROGRAM on belongs to it, up to a single colon,
    which another program follows.
    """
    options = parse(arguments)
    if options.help:
        click.echo(click.get_current_context().get_help())
    elif options.version:
        from cloudtrain._version import __version__

        click.echo(f"cloudtrain {__version__}")
    elif options.check_build:
        _show_build()
    else:
        run(arguments)


def _plain(text: str) -> str:
    """``text`` without the Markdown of the guide."""
    return re.sub(r"\[(.*?)\]\(.*?\)", r"\1", text).replace("`", "")


def _show_build() -> None:
    """Print which packages this interpreter has, in the form of horovodrun."""
    backends = {"Gloo": "torch", "MPI": "mpi4py"}
    frameworks = {"PyTorch": "torch", "TensorFlow": "tensorflow", "MXNet": "mxnet", "Horovod": "horovod"}
    click.echo(f"cloudtrain, with {sys.executable}")
    for title, packages in (("Frameworks", frameworks), ("Collectives", backends)):
        click.echo(f"\n{title}:")
        for name, package in packages.items():
            click.echo(f"    [{'X' if find_spec(package) else ' '}] {name}")
    click.echo("\nSee also: cloudtrain doctor")
