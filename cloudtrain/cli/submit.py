"""``cloudtrain submit``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._errors import INTERRUPTED, Ended
from cloudtrain.cli._options import echo_json, json_option, set_option
from cloudtrain.cli._script_command import ScriptCommand

if TYPE_CHECKING:
    from cloudtrain.submission import Submission

JOB_FILES = (".yaml", ".yml", ".json")
SHOWN_COMPANIONS = 8
"""The most files packed with the script whose names are printed."""


@click.command("submit", cls=ScriptCommand)
@click.argument("file", type=click.Path())
@click.argument("script_args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--platform", metavar="NAME", help="Platform to run on.  [default: from the config file, or local]"
)
@click.option(
    "--instance-type", metavar="TYPE", help="Machine type of the hosts, for example ml.p4d.24xlarge."
)
@click.option("--instance-count", type=int, metavar="N", help="Number of hosts.")
@click.option("--gpus", metavar="N", help="Number of GPUs of each host, on platforms that have this option.")
@click.option("--processes-per-host", type=int, metavar="N", help="Number of ranks on each host.")
@click.option("--torchrun", is_flag=True, help="Start the ranks with torchrun.")
@click.option("--mpirun", is_flag=True, help="Start the ranks with mpirun.")
@click.option("--horovod", is_flag=True, help="Run a script that is written for Horovod.")
@click.option("--image", metavar="IMAGE", help="Container image to run in.")
@click.option("--source-dir", metavar="FOLDER", help="Folder to pack; FILE is in it.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="CHANNEL=URI",
    help="Add an input channel: a URI, or a local file or folder. Repeatable.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a variable for the script. Repeatable. For secrets, use --secret.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME",
    help="Pass a variable of your environment to the script, and never show its value. Repeatable.",
)
@click.option("--output-path", metavar="URI", help="Where to store the model and other outputs.")
@click.option("--checkpoint-s3-uri", metavar="URI", help="Where to store checkpoints.")
@click.option("--name", metavar="NAME", help="Name of the job.  [default: the script's name and the time]")
@click.option(
    "--mount-source",
    is_flag=True,
    help="Mount the source folder into the containers instead of copying it, for quick edits.",
)
@click.option(
    "--convert-notebook",
    is_flag=True,
    help="Convert FILE, a Jupyter notebook, to a script next to it, and run that.",
)
@set_option
@click.option(
    "--array",
    metavar="FILE",
    help="Submit many jobs, one for each element of FILE (YAML or JSON): a list of mappings of fields; or a mapping of "
    "lists, for all combinations.",
)
@click.option("--wait", is_flag=True, help="Print the output until the job ends (the default).")
@click.option("--no-wait", is_flag=True, help="Print the name of the job and return immediately.")
@click.option(
    "--dry-run", is_flag=True, help="Print the request as JSON, or the batch script; submit nothing."
)
@click.option(
    "--as",
    "export",
    metavar="FORMAT",
    help="With --dry-run: print a step of SageMaker Pipelines (pipeline-step), or a state of AWS Step Functions "
    "(step-functions).",
)
@click.option(
    "--upload", is_flag=True, help="With --as: upload the source, so that the printed step can run."
)
@click.option(
    "--check", is_flag=True, help="Check for problems that would make the job fail; submit nothing."
)
@click.option(
    "--diff", metavar="JOB", help="Print what differs from the request of an earlier JOB; submit nothing."
)
@json_option
def command(
    file: str,
    script_args: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Submit FILE as a job: a script, or a job file (YAML or JSON).

    The command prints the job's output until it ends, and exits with the script's exit status. Ctrl-C detaches
    and leaves the job running.

    Everything after -- reaches the script unchanged. Options override the fields of the job file. Two options that
    set the same field are an error.

    \b
    Examples:
      cloudtrain submit train.py --instance-count 2 -- --epochs 5 --lr 0.1
      cloudtrain submit train.py --mpirun --processes-per-host 8 --no-wait
      cloudtrain submit train.yaml --set hyperparameters.epochs=5 --dry-run
      cloudtrain submit train.yaml --array values.yaml
    """
    _check_working_folder()
    from cloudtrain.config import config_warnings
    from cloudtrain.submission import NOT_WAITING, prepare

    fields = _fields(file, script_args, options)
    if options["array"]:
        from cloudtrain.cli._array import submit_array

        with _interruptible("jobs may have been submitted. See: cloudtrain list"):
            submit_array(fields, options, as_json=as_json)
        return
    if options["check"]:
        from cloudtrain.cli._checks import check_job

        check_job(fields, as_json=as_json, defaults={})
    with _interruptible("nothing was submitted."):
        submits = not (options["dry_run"] or options["diff"])
        with _read_bar(quiet=as_json) as on_read:
            is_template = bool(options["export"])
            submission = prepare(
                fields, submits=submits, is_template=is_template, on_read=on_read, defaults={}
            )
        if options["diff"]:
            from cloudtrain.cli._diff import show_diff

            show_diff(options["diff"], submission, as_json=as_json)
            return
        if options["export"]:
            from cloudtrain.cli._export import show_export

            show_export(options["export"], submission, uploads=options["upload"])
            return
        if options["dry_run"]:
            request = submission.request
            shown = request.preview if sys.stdout.isatty() else request.shown
            click.echo(request.to_json() if as_json else shown)
            return
        if submission.archive and submission.archive.companions:
            click.echo(f"Packed with the script: {_first_few(submission.archive.companions)}", err=True)
        if submission.archive and submission.archive.left_out:
            click.echo(
                f"Left out by .gitignore or .cloudtrainignore: {_first_few(submission.archive.left_out)}",
                err=True,
            )
        for warning in (*submission.warnings, *config_warnings()):
            click.echo(f"{click.style('Warning:', fg='yellow')} {warning}", err=True)
        _upload(submission, quiet=as_json)
    name, platform = submission.request.job_name, submission.platform.name
    with _interruptible(
        f"the job {name} may have been submitted. See: cloudtrain describe {name} --platform {platform}"
    ):
        job = submission.start()
    if options["no_wait"] and submission.resubmission():
        click.echo(f"{click.style('Warning:', fg='yellow')} {NOT_WAITING}", err=True)
    if not as_json:
        note = submission.request.note
        shown = f" {note}" if note else ""
        click.echo(f"Job {click.style(job.name, bold=True)} on {platform}{shown}", err=True)
    if not options["no_wait"]:
        with _interruptible(f"the job {name} continues to run. Attach to it with: cloudtrain wait {name}"):
            from cloudtrain.cli._view import watch  # slow to import: do it while the job starts

        watch(job, quiet=as_json, again=submission.resubmission())
    elif as_json:
        echo_json(job.describe().to_dict())
    else:
        click.echo(job.name)


def _check_working_folder() -> None:
    """Raises InvalidJob if the folder that relative paths start in was deleted."""
    import os

    from cloudtrain.errors import InvalidJob

    try:
        os.getcwd()
    except FileNotFoundError:
        raise InvalidJob("the working folder was deleted", hint="Change to a folder that exists.") from None


def _first_few(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_COMPANIONS
    return ", ".join(names[:SHOWN_COMPANIONS]) + (f" and {more} more" if more > 0 else "")


@contextmanager
def _interruptible(consequence: str) -> Iterator[None]:
    """On Ctrl-C or a signal, print what it means for the job, and end like a program that the signal ended."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"Interrupted: {consequence}", err=True)
        sys.exit(INTERRUPTED)
    except Ended:
        with suppress(OSError):  # the terminal may be closed
            click.echo(f"Interrupted: {consequence}", err=True)
        raise


@contextmanager
def _read_bar(*, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar that appears when the first bytes of local data are read: few jobs have some."""
    import threading

    lock = threading.Lock()
    bar: list[Callable[[int], None]] = []
    with ExitStack() as opened:

        def on_read(count: int) -> None:
            with lock:
                if not bar:
                    from cloudtrain.cli._progress import bytes_bar

                    bar.append(opened.enter_context(bytes_bar("read data", quiet=quiet)))
                bar[0](count)

        yield on_read


def _upload(submission: Submission, *, quiet: bool) -> None:
    """Upload the source and the local data of the job, with a progress bar."""
    uploads = submission.uploads
    if not uploads or quiet:
        submission.upload()
        return
    from cloudtrain.cli._progress import bytes_bar

    with bytes_bar("upload", sum(upload.size for upload in uploads)) as on_bytes:
        submission.upload(on_bytes, lambda line: click.echo(line, err=True))


def names_script(file: str) -> bool:
    """Whether ``file`` is a script, not a job file."""
    return not file.lower().endswith(JOB_FILES)


def fields_of(file: str) -> dict[str, Any]:
    """The fields of the job file ``file``; if it is a script, a job with only this entry point."""
    from pathlib import Path

    from cloudtrain.spec import read_job_file

    return {"entry_point": file} if names_script(file) else read_job_file(Path(file))


def _fields(file: str, script_args: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The fields of ``file`` and the user's defaults, overridden by the options and the script's arguments."""
    from cloudtrain.cli._contradictions import FIELDS, check_contradictions
    from cloudtrain.cli._launchers import chosen_launcher, distribution_of
    from cloudtrain.config import read_config
    from cloudtrain.spec import apply_overrides

    described = fields_of(file)
    fields = {**read_config(), **described}
    distribution = fields.get("distribution")
    check_contradictions(
        options,
        names_script=names_script(file),
        script_args=script_args,
        launcher=chosen_launcher(options, distribution),
    )
    distribution = distribution_of(options, distribution, file if described.get("distribution") else None)
    if distribution is not None:
        fields["distribution"] = distribution
    plain = {field: options[name] for name, field in FIELDS.items() if "." not in field}
    fields.update({field: value for field, value in plain.items() if value is not None})
    if options["inputs"]:
        fields["inputs"] = {
            **(fields.get("inputs") or {}),
            **dict(_pair(text, "--input", "CHANNEL=URI") for text in options["inputs"]),
        }
    if options["variables"]:
        given = dict(_pair(text, "--env", "NAME=VALUE") for text in options["variables"])
        fields["environment"] = {**(fields.get("environment") or {}), **given}
    secrets = fields.get("secrets") or []
    if options["secrets"] and isinstance(secrets, list):
        fields["secrets"] = [*secrets, *(name for name in options["secrets"] if name not in secrets)]
    own: dict[str, Any] = {"mount_source": _folder(fields)} if options["mount_source"] else {}
    if options["gpus"]:
        own["gpus"] = int(options["gpus"]) if options["gpus"].isdecimal() else options["gpus"]
    if own:
        fields["platform_options"] = {**(fields.get("platform_options") or {}), **own}
    fields = apply_overrides(_with_long_channels(fields, options["settings"]), options["settings"])
    arguments = fields.get("arguments") or []
    if script_args and isinstance(arguments, list):
        fields["arguments"] = [*arguments, *script_args]
    if options["convert_notebook"]:
        fields["entry_point"] = _converted(fields)
    return fields


def _converted(fields: dict[str, Any]) -> str:
    """The entry point that the job's notebook is converted to, next to it. Raises InvalidJob, InvalidSource."""
    from pathlib import Path

    from cloudtrain.errors import InvalidJob
    from cloudtrain.packaging.notebook import NOTEBOOK, convert_notebook

    entry_point = str(fields.get("entry_point") or "")
    if not entry_point.lower().endswith(NOTEBOOK):
        raise InvalidJob(
            f"--convert-notebook: {entry_point or 'the job'} is not a notebook", hint="Leave the option out."
        )
    inside = Path(fields.get("source_dir") or "", entry_point)
    script = convert_notebook(inside if inside.exists() else Path(entry_point))
    return str(Path(entry_point).with_name(script.name))


def _with_long_channels(fields: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    """``fields`` with channels that ``--set inputs.CHANNEL.OPTION`` refines as mappings."""
    inputs = fields.get("inputs")
    if not isinstance(inputs, dict):
        return fields
    paths = [setting.partition("=")[0] for setting in settings]
    refined = {
        name: {"s3_data": channel}
        for name, channel in inputs.items()
        if isinstance(channel, str) and any(path.startswith(f"inputs.{name}.") for path in paths)
    }
    return {**fields, "inputs": {**inputs, **refined}} if refined else fields


def _folder(fields: dict[str, Any]) -> str:
    """The absolute path of the source folder: ``source_dir``, or the folder of the script."""
    import os

    return os.path.abspath(fields.get("source_dir") or os.path.dirname(fields.get("entry_point", "")) or ".")


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    """The name and the value of a repeatable option. A variable may be empty, a channel may not."""
    name, separator, value = text.partition("=")
    if not separator or not name or (option == "--input" and not value):
        raise click.BadParameter(f"{text!r} does not have the form {form}", param_hint=option)
    return name, value
