"""``cloudtrain submit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import echo_json, json_option

if TYPE_CHECKING:
    from cloudtrain.job import Job
    from cloudtrain.submission import Submission

JOB_FILES = (".yaml", ".yml", ".json")


@click.command("submit")
@click.argument("file", type=click.Path())
@click.argument("script_args", nargs=-1, type=click.UNPROCESSED)
@click.option("--platform", help="Where to run.  [default: local, or what the config file says]")
@click.option("--instance-type", help="The kind of machine.")
@click.option("--instance-count", type=int, help="How many of them.")
@click.option("--processes-per-host", type=int, help="Ranks on each host, started by cloudtrain itself.")
@click.option("--torchrun", "launcher", flag_value="torch_distributed", help="Start the ranks by torchrun.")
@click.option("--mpirun", "launcher", flag_value="mpi", help="Start the ranks by mpirun.")
@click.option("--horovod", "launcher", flag_value="horovod", help="The script is written for Horovod.")
@click.option("--source-dir", help="The folder to pack; FILE is in it.")
@click.option(
    "--input", "inputs", multiple=True, metavar="CHANNEL=URI", help="A channel of data. Repeatable."
)
@click.option("--output-path", metavar="URI", help="Where model and outputs go.")
@click.option("--checkpoint-s3-uri", metavar="URI", help="Where checkpoints are kept.")
@click.option("--name", "job_name", help="The job's name.  [default: made of the script's name and the time]")
@click.option(
    "--mount-source",
    is_flag=True,
    help="In a container, see the source itself and not a copy: for quick edits.",
)
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="Change any field. Repeatable.")
@click.option("--wait/--no-wait", default=True, help="Show the output until the job ends.  [default: wait]")
@click.option("--dry-run", is_flag=True, help="Print the exact request, and do nothing.")
@click.option("--check", is_flag=True, help="Look for what would make the job fail, and start nothing.")
@click.option("--diff", metavar="JOB", help="Show what differs from the request of JOB, and start nothing.")
@json_option
def command(
    file: str,
    script_args: tuple[str, ...],
    wait: bool,
    dry_run: bool,
    check: bool,
    diff: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run FILE: a script, or a job file (YAML or JSON).

    What follows -- are the script's own arguments, which become hyperparameters:

    \b
    cloudtrain submit train.py --instance-count 2 -- --epochs 5 --lr 0.1
    cloudtrain submit train.yaml --set hyperparameters.epochs=5

    The exit status is the job's. Ctrl-C leaves the job running.
    """
    from cloudtrain.submission import prepare

    fields = _fields(file, script_args, options)
    if check:
        from cloudtrain.cli._checks import check_job

        check_job(fields, as_json=as_json)
    submission = prepare(fields)
    if diff:
        from cloudtrain.cli._diff import show_diff

        show_diff(diff, submission, as_json=as_json)
        return
    if dry_run:
        click.echo(submission.request.to_json())
        return
    for warning in submission.archive.warnings if submission.archive else ():
        click.echo(f"{click.style('Warning:', fg='yellow')} {warning}", err=True)
    job = _start(submission, quiet=as_json)
    if wait:
        from cloudtrain.cli._view import watch  # heavy: imported while the job starts

        watch(job, quiet=as_json)
    elif as_json:
        echo_json(job.describe().to_dict())
    else:
        click.echo(job.name)


def _start(submission: Submission, *, quiet: bool) -> Job:
    """Submit, with a bar where the source is uploaded."""
    if submission.uploads and not quiet:
        from cloudtrain.cli._progress import bytes_bar

        with bytes_bar("upload", submission.archive.size if submission.archive else None) as on_bytes:
            job = submission.submit(on_bytes)
    else:
        job = submission.submit()
    if not quiet:
        click.echo(f"Job {click.style(job.name, bold=True)} on {job.platform.name}", err=True)
    return job


def fields_of(file: str) -> dict[str, Any]:
    """The fields in a job file; a script is the entry point of a job that has no others."""
    from pathlib import Path

    from cloudtrain.spec import read_job_file

    path = Path(file)
    return read_job_file(path) if path.suffix.lower() in JOB_FILES else {"entry_point": file}


def _fields(file: str, script_args: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The job's fields: those of the file, changed by the options, then by ``--set``, then by the arguments."""
    from cloudtrain.spec import apply_overrides, script_arguments

    fields = fields_of(file)
    settings = options.pop("settings")
    inputs = options.pop("inputs")
    processes = options.pop("processes_per_host")
    launcher = options.pop("launcher")
    mount_source = options.pop("mount_source")
    if launcher or processes is not None:
        fields["distribution"] = {launcher or "processes": {"processes_per_host": processes}}
    fields.update({name: value for name, value in options.items() if value is not None})
    if inputs:
        fields["inputs"] = {**fields.get("inputs", {}), **dict(_channel(text) for text in inputs)}
    if mount_source:
        fields["platform_options"] = {**fields.get("platform_options", {}), "mount_source": _folder(fields)}
    fields = apply_overrides(fields, settings)
    if script_args:
        fields["hyperparameters"] = {**fields.get("hyperparameters", {}), **script_arguments(script_args)}
    return fields


def _folder(fields: dict[str, Any]) -> str:
    """The folder of the source: the named one, else that of the script."""
    import os

    return os.path.abspath(fields.get("source_dir") or os.path.dirname(fields.get("entry_point", "")) or ".")


def _channel(text: str) -> tuple[str, str]:
    from pathlib import Path

    name, separator, uri = text.partition("=")
    if not separator or not name or not uri:
        raise click.BadParameter(f"{text!r} is not of the form channel=URI", param_hint="--input")
    return name, Path(uri).absolute().as_uri() if "://" not in uri and Path(uri).exists() else uri
