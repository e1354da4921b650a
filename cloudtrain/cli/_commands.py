"""The subcommands of ``cloudtrain`` and their help: a click group that imports each of them on first use."""

from __future__ import annotations

import os
import shlex
import sys
from importlib import import_module
from pathlib import Path

import click

from cloudtrain._version import __version__
from cloudtrain.cli._errors import INTERRUPTED
from cloudtrain.errors import nearest

SECTIONS = {
    "Jobs": {
        "init": "Write a job that works into FOLDER: a script, its job file, and data to replace by your own.",
        "examples": "List the examples, or copy the example NAME into FOLDER, by default a new one of its name.",
        "plan": "Predict how long FILE, a script or a job file, will train, and what that will cost.",
        "submit": "Submit FILE as a job: a script, or a job file (YAML or JSON).",
        "sweep": "Search for hyperparameters: run FILE as many jobs, and find the best value of a metric.",
        "run": "Run a program as several ranks, in the foreground.",
        "list": "List the jobs submitted from this machine, newest first.",
        "top": "Watch a job live: its hosts and GPUs, phases, progress, and why it waits.",
        "describe": "Show the state and the results of JOB, and why it failed.",
        "logs": "Print the output of the ranks of JOB.",
        "wait": "Attach to JOB: print its output until it ends, and exit with its exit status.",
        "stop": "Stop JOB, or all jobs of a pattern that were submitted from this machine: 'sweep-*'.",
        "preempt": "Simulate a preemption of JOB, to test that the job survives one.",
        "stacks": "Show where the ranks of JOB are: their Python stacks, grouped by equal stack, the odd one first.",
        "notify": "Send the notifications of JOB that have not arrived, or test those of a job file.",
    },
    "Results": {
        "metrics": "Show the metrics of JOB over time: those that its script logs, or its metric_definitions find.",
        "dashboard": "Show the jobs submitted from this machine in the browser, live.",
        "report": "Write all about JOB into one file, or compare several jobs.",
        "export": "Export JOBS, or all jobs, with their metrics over time: as CSV, as Parquet, or to MLflow.",
        "timeline": "Show how training steps spend their time.",
        "download": "Download the model and the other outputs of JOB.",
        "upload": "Upload the outputs of JOB whose training is complete, but whose upload failed.",
        "checkpoints": "List, verify, download and delete the checkpoints of a run.",
    },
    "Checks": {
        "doctor": "Check a platform, or FILE on it, for problems that would make jobs fail.",
        "check": "Check FILE, a script or a job file, for problems that would make the job fail.",
        "platforms": "List the platforms, or the options of the platform NAME.",
        "offers": "Show on which hosts a job with COUNT GPUs could run, with prices, quotas and free GPUs.",
        "prices": "List the prices that are known here.",
    },
    "Clouds and clusters": {
        "sagemaker": "Come from the SageMaker SDK, and look at Amazon SageMaker's offers.",
        "slurm": "Log in to clusters with Slurm.",
    },
    "Local environment": {
        "image": "Build, push and list cloudtrain's images, for jobs in containers.",
        "s3": "Copy data to and from S3, and run a local S3 server.",
        "clean": "Remove what jobs left behind on this machine.",
        "completion": "Print the script that completes commands, options, and names of jobs and platforms in SHELL.",
    },
}
"""The commands as ``--help`` lists them, with the first sentence of the help of each, so that it imports none of them.

Each is ``command`` in the module with its name, which is imported on use, except those in `MODULES`.
"""

MODULES = {
    **dict.fromkeys(("describe", "logs", "wait", "preempt", "metrics", "download", "upload"), "jobs"),
    "check": "doctor",
}
"""The modules of commands that share one. Each command is the attribute with its name."""

COMMANDS = tuple(name for names in SECTIONS.values() for name in names)


def short_help(text: str) -> str:
    """The help of a command in one line, from its first sentence."""
    return click.Command(None, help=text).get_short_help_str(200)


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return [*COMMANDS]  # `list` is a module of this package

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for section, names in SECTIONS.items():
            rows = [(name.ljust(width), short_help(text)) for name, text in names.items()]
            with formatter.section(section):
                formatter.write_dl(rows)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not context.resilient_parsing:
            if os.path.isfile(name):
                advice = f"To submit the file: {context.command_path} submit {shlex.quote(name)}"
                context.fail(f"No such command {name!r}. {advice}")
            context.fail(f"No such command {name!r}. {nearest(name, COMMANDS)}")
        return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except click.MissingParameter as error:
            raise click.UsageError(error.format_message() + _next_step(error), error.ctx) from None
        except KeyboardInterrupt:  # click would print that the command was aborted, with exit status 1
            click.echo("\nInterrupted.", err=True)
            sys.exit(INTERRUPTED)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = (MODULES[name], name) if name in MODULES else (name, "command")
        command: click.Command = getattr(import_module(f"cloudtrain.cli.{module}"), attribute)
        return command


SAMPLES = {
    "file": "train.yaml", "files": "notebook.ipynb", "flavour": "pytorch-cpu", "folder": "copy", "job": "train-1",
    "name": "my-sweep", "place": "train-1", "shell": "bash", "target": "jobs.csv", "uri": "s3://bucket/old",
}  # fmt: skip
"""For each parameter, a value for the example of a command whose help has none."""


def _next_step(error: click.MissingParameter) -> str:
    """The lines after the error: an example of the command, and how to list the names of jobs."""
    if error.ctx is None:
        return ""
    missing = error.param.name if error.param else ""
    names = "\n  Your jobs: cloudtrain list" if missing in ("job", "jobs") else ""
    return f"\n  For example: {example_of(error.ctx)}{names}"


def example_of(context: click.Context) -> str:
    """An example of a command: the first one in its help, or in that of its group, or one of `SAMPLES`."""
    path = context.command_path
    for place in (context, context.parent):
        lines = ((place.command.help or "") if place else "").splitlines()
        for line in map(str.strip, lines):
            if line.startswith(f"{path} "):
                return line
    words = [
        f"{parameter.opts[0]} {SAMPLES[parameter.name]}"
        if isinstance(parameter, click.Option)
        else SAMPLES[parameter.name]
        for parameter in context.command.params
        if parameter.required and parameter.name
    ]
    return " ".join([path, *words])


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        commit = _commit()
        click.echo(f"cloudtrain {__version__}" + (f" (commit {commit})" if commit else ""))
        context.exit()


def _commit() -> str:
    """The commit that this package was built from, or of the clone that it is in; empty if that is unknown."""
    package = Path(__file__).parents[1]
    try:
        return (package / "commit.txt").read_text(encoding="utf-8").strip()
    except OSError:
        if not (package.parent / ".git").exists():
            return ""
    import subprocess

    describe = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty"]
    try:
        done = subprocess.run(describe, cwd=package.parent, capture_output=True, text=True, check=False)
        return done.stdout.strip()
    except OSError:  # there is no git
        return ""


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version,
    help="Show the version and the commit, and exit.",
)  # fmt: skip
def cli() -> None:
    """Submit distributed training jobs and follow them to their end.

    \b
    Examples:
      cloudtrain submit train.py -- --epochs 5    submit a script with its arguments
      cloudtrain submit train.yaml                submit a job file
      cloudtrain list                             list the jobs submitted from this machine

    Run cloudtrain COMMAND --help for the options of a command.
    """
