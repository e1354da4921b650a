"""``cloudtrain submit``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._errors import INTERRUPTED, Ended
from cloudtrain.cli._options import complete_platform, json_option, set_option
from cloudtrain.cli._output import echo_json, notify

if TYPE_CHECKING:
    from cloudtrain.submission import Submission


class ScriptCommand(click.Command):
    """A command that shows how to pass an unknown option to the script, or how to set the field with its name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from cloudtrain.spec.job import FIELDS

            field = error.option_name.lstrip("-").replace("-", "_")
            if field in FIELDS:
                message = f"No such option {error.option_name!r}. {field} is a field of the job: --set {field}=VALUE"
                raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from None
            script = next(filter(os.path.isfile, given), "FILE")
            example = shlex.join([script, "--", *_with_value(error.option_name, given)])
            advice = (
                f"If it belongs to the script, put it behind -- with the script's other arguments: "
                f"{ctx.command_path} {example}"
            )
            own = self._own_name(field)
            problem = f"No such option {error.option_name!r}. {own}" if own else error.format_message()
            raise click.NoSuchOption(error.option_name, f"{problem} {advice}", ctx=error.ctx) from None

    def _own_name(self, name: str) -> str:
        """A sentence on how to set the field that other launchers call ``name``; empty if there is none."""
        from cloudtrain.cli._submit_fields import FIELDS as FIELD_OF
        from cloudtrain.spec.explain import OTHER_NAMES

        field = next((field for field, others in OTHER_NAMES.items() if name in others), "")
        option_of = {FIELD_OF.get(str(one.name), one.name): one.opts[-1] for one in self.params}
        option = option_of.get({"environment": "variables"}.get(field, field))
        if field and option:
            return f"Did you mean {option}?"
        if field in ("distribution", "torch_distributed"):
            return "To choose what starts the ranks: --torchrun, --mpirun or --horovod."
        if field == "platform_options":
            return f"An option of the platform is set with --set {field}.{name}=VALUE."
        if field == "hyperparameters":
            return "A hyperparameter is set with --set hyperparameters.NAME=VALUE."
        plain = field and field not in ("arguments", "entry_point")
        return f"{field} is a field of the job: --set {field}=VALUE." if plain else ""


def _with_value(option: str, arguments: list[str]) -> list[str]:
    """``option`` as it is in ``arguments``, and the argument after it unless that is an option too.

    click reports only the first letter of ``-vv`` and ``-lr``.
    """
    is_letter = not option.startswith("--")
    for number, argument in enumerate(arguments):
        if argument.startswith(f"{option}="):
            return [argument]
        if argument == option or (is_letter and argument.startswith(option)):
            follows = arguments[number + 1 : number + 2]
            return [
                argument,
                *(text for text in follows if not (text.startswith("-") or os.path.isfile(text))),
            ]
    return [option]


SHOWN_COMPANIONS = 8
"""The most files packed with the script whose names are printed."""


@click.command("submit", cls=ScriptCommand)
@click.argument("file", type=click.Path())
@click.argument("script_args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--platform",
    metavar="NAME",
    shell_complete=complete_platform,
    help="Platform to run on.  [default: from the config file, or local]",
)
@click.option(
    "--instance-type", metavar="TYPE", help="Machine type of the hosts, for example ml.p4d.24xlarge."
)
@click.option("--instance-count", type=int, metavar="N", help="Number of hosts.")
@click.option("--spare-hosts", type=int, metavar="N", help="Number of further hosts that replace lost ones.")
@click.option(
    "--min-instance-count", type=int, metavar="N", help="Continue with as few hosts when others are lost."
)
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
@click.option(
    "--plan",
    "plan_file",
    metavar="PLAN",
    help="Keep what cloudtrain plan --save predicted, and show later how right it was.",
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
    from cloudtrain.cli._submit_fields import job_fields

    fields = job_fields(file, script_args, options)
    if options["array"]:
        from cloudtrain.cli._submit_modes import submit_array

        with _interruptible("jobs may have been submitted. See: cloudtrain list"):
            submit_array(fields, options, as_json=as_json)
        return
    if options["check"]:
        from cloudtrain.cli.doctor import check_job

        check_job(fields, as_json=as_json, defaults={})
    with _interruptible("nothing was submitted."):
        submission = _prepare(fields, options, quiet=as_json)
        if options["diff"] or options["dry_run"]:
            _show_only(submission, options, as_json=as_json)
            return
        planned = _planned(submission, options["plan_file"])
        _report(submission)
        _upload(submission, quiet=as_json)
    _start(submission, planned, waits=not options["no_wait"], as_json=as_json)


def _prepare(fields: dict[str, Any], options: dict[str, Any], *, quiet: bool) -> Submission:
    from cloudtrain.submission import prepare

    submits = not (options["dry_run"] or options["diff"])
    with _read_bar(quiet=quiet) as on_read:
        is_template = bool(options["export"])
        return prepare(fields, submits=submits, is_template=is_template, on_read=on_read, defaults={})


def _planned(submission: Submission, plan_file: str | None) -> dict[str, Any] | None:
    """The option of the plan with the hosts of the submission. Raises InvalidJob if there is none."""
    if plan_file is None:
        return None
    from cloudtrain.plan.choose import option_for
    from cloudtrain.plan.record import read_plan

    job = submission.job
    return option_for(read_plan(plan_file), job.instance_type, job.host_count, job.use_spot_instances)


def _show_only(submission: Submission, options: dict[str, Any], *, as_json: bool) -> None:
    """Print what would be submitted: the changes since an earlier job, the export for a service, or the request."""
    if options["diff"]:
        from cloudtrain.cli._submit_modes import show_diff

        show_diff(options["diff"], submission, as_json=as_json)
    elif options["export"]:
        from cloudtrain.cli._submit_modes import show_export

        show_export(options["export"], submission, uploads=options["upload"])
    else:
        request = submission.request
        text = request.preview if sys.stdout.isatty() else request.shown
        click.echo(request.to_json() if as_json else text)
        if submission.projection:
            notify("Note", submission.projection)


def _report(submission: Submission) -> None:
    """Print what was packed, what was left out, and the warnings."""
    from cloudtrain.config import config_warnings

    packed = submission.archive
    if packed and packed.companions:
        click.echo(f"Packed with the script: {_first_few(packed.companions)}", err=True)
    if packed and packed.left_out:
        click.echo(f"Left out by .gitignore or .cloudtrainignore: {_first_few(packed.left_out)}", err=True)
    for warning in (*submission.warnings, *config_warnings()):
        notify("Warning", warning)
    if submission.projection:
        notify("Note", submission.projection)


def _start(submission: Submission, planned: dict[str, Any] | None, *, waits: bool, as_json: bool) -> None:
    """Start the job, and by default follow it to its end."""
    name, platform = submission.request.job_name, submission.platform.name
    with _interruptible(
        f"the job {name} may have been submitted. See: cloudtrain describe {name} --platform {platform}"
    ):
        job = submission.start()
    if planned:
        from cloudtrain.history.predictions import keep

        keep(name, platform, planned)
    if not waits and submission.resubmission():
        from cloudtrain.submission import NOT_WAITING

        notify("Warning", NOT_WAITING)
    if not as_json:
        note = f" {submission.request.note}" if submission.request.note else ""
        click.echo(f"Job {click.style(job.name, bold=True)} on {platform}{note}", err=True)
    if waits:
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
                    from cloudtrain.cli._output import bytes_bar

                    bar.append(opened.enter_context(bytes_bar("read data", quiet=quiet)))
                bar[0](count)

        yield on_read


def _upload(submission: Submission, *, quiet: bool) -> None:
    """Upload the source and the local data of the job, with a progress bar."""
    uploads = submission.uploads
    if not uploads or quiet:
        submission.upload()
        return
    from cloudtrain.cli._output import bytes_bar

    with bytes_bar("upload", sum(upload.size for upload in uploads)) as on_bytes:
        submission.upload(on_bytes, lambda line: click.echo(line, err=True))
