"""``cloudtrain plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import complete_platform, json_option, set_option
from cloudtrain.cli._output import echo_json, print_table

if TYPE_CHECKING:
    from cloudtrain.plan.choose import Plan


@click.command("plan")
@click.argument("file", type=click.Path())
@click.option(
    "--gpus", metavar="N,N,...", help="Numbers of GPUs to compare.  [default: 1, 2, 4, 8 times the job's]"
)
@click.option(
    "--instance-type",
    "instance_types",
    multiple=True,
    metavar="TYPE",
    help="Instance type to compare. Repeatable.  [default: that of the job]",
)
@click.option(
    "--from-job", metavar="JOB", help="Take step time and other times from the records of this job."
)
@click.option(
    "--measure", is_flag=True, help="Run the job on this machine or your hosts for some steps, and stop it."
)
@click.option(
    "--step-seconds",
    type=float,
    metavar="S",
    help="Seconds of one step, as measured on the hosts of the job.",
)
@click.option(
    "--measured-on", type=int, metavar="N", help="GPUs of that measurement.  [default: those of the job]"
)
@click.option("--steps", type=int, metavar="N", help="Steps of the training on these GPUs.")
@click.option("--parameters", type=float, metavar="N", help="Parameters of the model, for example 7e9.")
@click.option("--sharded", is_flag=True, help="The parameters are sharded (FSDP, ZeRO-3).")
@click.option(
    "--accumulation", type=int, metavar="N", help="Passes through the model in one step.  [default: 1]"
)
@click.option(
    "--strong",
    is_flag=True,
    help="The batch of a step stays the same on more GPUs. By default, that of each GPU does, and steps get fewer.",
)
@click.option("--network", type=float, metavar="GBIT", help="Gbit/s of a host's network.")
@click.option(
    "--checkpoint-seconds", type=float, metavar="S", help="How long a checkpoint stops the training."
)
@click.option("--restart-seconds", type=float, metavar="S", help="How long a restart takes.")
@click.option("--deadline", metavar="WHEN", help="When it must be done: 24h, 2d, 2026-12-24T18:00.")
@click.option("--budget", type=float, metavar="AMOUNT", help="The most that it may cost.")
@click.option(
    "--platform",
    metavar="NAME",
    shell_complete=complete_platform,
    help="Platform to plan for.  [default: the job's]",
)
@click.option(
    "--save", metavar="FILE", type=click.Path(dir_okay=False), help="Write the plan, for submit --plan."
)
@click.option("--all", "shows_all", is_flag=True, help="Print all options as a table.")
@set_option
@json_option
def command(
    file: str,
    from_job: str | None,
    measure: bool,
    platform: str | None,
    save: str | None,
    shows_all: bool,
    settings: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Predict how long FILE, a script or a job file, will train, and what that will cost.

    Submits nothing, except with --measure.

    Prints the cheapest option, the fastest, and the cheapest by the deadline, each as a range from optimistic to
    pessimistic. Needs no network.

    \b
    Examples:
      cloudtrain plan train.yaml --from-job short-run --steps 100000
      cloudtrain plan train.yaml --step-seconds 0.42 --steps 100000 --gpus 8,16,64 --deadline 24h
    """
    from cloudtrain.cli._submit_fields import fields_of
    from cloudtrain.config import read_config
    from cloudtrain.packaging import check_entry_point
    from cloudtrain.plan.inputs import make_plan, wishes_from
    from cloudtrain.spec import TrainingJob, apply_overrides

    wishes = wishes_from(options)
    given = {"platform": platform} if platform else {}
    fields = apply_overrides({**read_config(), **fields_of(file), **given}, settings)
    job = TrainingJob.from_dict(fields)
    if job.entry_point and not job.source_dir and "git_config" not in fields:
        check_entry_point(None, job.entry_point)
    record = None
    if measure and from_job:
        raise click.UsageError("--measure and --from-job both give the time of a step: use only one of them.")
    if measure:
        from cloudtrain.cli._measured_run import measure as run

        click.echo("Running the job for some steps to measure it…", err=True)
        record = run(fields)
    elif from_job:
        from cloudtrain.job import Job
        from cloudtrain.plan.measured import measured

        record = measured(Job.attach(from_job))
    if not (where := job.platform):
        from cloudtrain.submission import default_platform  # slow to import

        where = default_platform(job)
    plan = make_plan(job, where, wishes, record)
    if save:
        from cloudtrain.plan.record import write_plan

        write_plan(save, plan)
    if as_json:
        echo_json(plan.to_dict())
    else:
        _show(plan, shows_all)


def _show(plan: Plan, shows_all: bool) -> None:
    from cloudtrain._display.planned import HEADINGS, RIGHT, notes, row, rows
    from cloudtrain.contract.text import escape_line

    print_table(["", *HEADINGS], rows(plan), RIGHT)
    if shows_all:
        click.echo()
        print_table(HEADINGS, map(row, plan.estimates), RIGHT)
    for line in notes(plan):
        click.echo(escape_line(line))
