"""``cloudtrain sweep``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._errors import INTERRUPTED
from cloudtrain.cli._options import json_option
from cloudtrain.cli._output import echo_json, print_table
from cloudtrain.cli.submit import ScriptCommand, command as submit

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from cloudtrain.sweep import StartedSweep
    from cloudtrain.sweep.plan import SweepPlan
    from cloudtrain.sweep.trials import Trial, Trials

NOT_OF_SWEEPS = (
    "array", "as_json", "check", "convert_notebook", "diff", "dry_run", "export", "mount_source", "no_wait",
    "plan_file", "upload", "wait",
)  # fmt: skip
"""The options of ``submit`` that are about one submission."""
COLOURS = {"Completed": "green", "Failed": "red", "No value": "yellow", "Pruned": "cyan", "Stopped": "yellow"}


class _Sweep(click.Group):
    """A group whose first argument is one of its commands, or a file to start a sweep of."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            return super().resolve_command(context, args)
        return "start", start, args

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("--help", "-h"):
            args = ["start", *args]  # options before the file
        return super().parse_args(context, args)

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file"), *super().shell_complete(context, incomplete)]


def _complete_sweep(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from cloudtrain.sweep.started import sweep_names

    return [name for name in sweep_names() if name.startswith(incomplete)]


name_argument = click.argument("name", shell_complete=_complete_sweep)
foreground_option = click.option(
    "--foreground", is_flag=True, help="Control the sweep in this process, which must live until its end."
)


@click.group("sweep", cls=_Sweep)
def command() -> None:
    """Search for hyperparameters: run FILE as many jobs, and find the best value of a metric.

    \b
    cloudtrain sweep train.py --search lr=log:1e-5..1e-1 --search depth=2,4,8 \\
        --metric val:accuracy --trials 8 --parallel 2
    cloudtrain sweep describe NAME
    """


@command.command("start", cls=ScriptCommand)
@click.option(
    "--search",
    "searches",
    multiple=True,
    metavar="NAME=VALUES",
    help="Search for a hyperparameter: log:1e-5..1e-1, 0.0..0.5, 1..8, or choices, 2,4,8. Repeatable.",
)
@click.option("--metric", metavar="NAME", help="The metric that trials report. Its last value counts.")
@click.option(
    "--goal", metavar="GOAL", help="maximize or minimize.  [default: what the metric's name implies]"
)
@click.option("--trials", type=int, metavar="N", help="Number of trials.  [default: 20, or the whole grid]")
@click.option("--parallel", type=int, metavar="N", help="Trials that run at the same time.  [default: 1]")
@click.option(
    "--trials-per-host",
    type=int,
    metavar="N",
    help="Trials that share a host and its GPUs, on local, hosts and container; the default of --parallel.",
)
@click.option(
    "--sampler", metavar="NAME", help="tpe, cmaes, random, quasi-random, grid or pbt.  [default: tpe]"
)
@click.option("--pruner", metavar="NAME", help="End bad trials early: asha, hyperband or median.")
@click.option(
    "--prune-after", type=int, metavar="STEP", help="The step at which a trial can be pruned first."
)
@click.option("--max-cost", type=float, metavar="AMOUNT", help="The most that all trials may cost together.")
@click.option("--seed", type=int, metavar="N", help="The same seed gives the same first suggestions.")
@click.option("--no-wait", is_flag=True, help="Print the name of the sweep and return immediately.")
@foreground_option
@json_option
def start(
    file: str, script_args: tuple[str, ...], searches: tuple[str, ...], no_wait: bool, foreground: bool,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Start a sweep of FILE, a script or a job file, and follow it.

    The sweep is controlled by a process in the background. Ctrl-C detaches, and leaves it running. With --foreground,
    Ctrl-C starts no further trials, and a second one stops those that run.
    """
    from cloudtrain.cli._output import notify
    from cloudtrain.sweep.start import create

    fields, plan = _described(file, script_args, searches, options)
    started = create(fields, plan)
    if not as_json:
        click.echo(f"Sweep {click.style(plan.name, bold=True)}: {plan.trials} trials, {_how(plan)}", err=True)
    if started.projection:
        notify("Note", started.projection)
    if foreground:
        _run_here(started, as_json=as_json)
    else:
        started.start_controller()
        if no_wait:
            click.echo(plan.name) if not as_json else echo_json(started.describe())
            return
        _watch(started, as_json=as_json)


start.params = [
    *(one for one in submit.params if one.name not in NOT_OF_SWEEPS),
    *start.params,
]


def _how(plan: Any) -> str:
    at_once = f"{plan.parallel} at the same time, " if plan.parallel > 1 else ""
    pruned = f", pruned by {plan.pruner}" if plan.pruner else ""
    return f"{at_once}{plan.sampler}{pruned}, to {plan.goal} {plan.metric}"


def _described(
    file: str, script_args: tuple[str, ...], searches: tuple[str, ...], options: dict[str, Any]
) -> tuple[dict[str, Any], Any]:
    """The job and the plan. Options override the field ``sweep`` of a job file."""
    from cloudtrain.cli._submit_fields import job_fields
    from cloudtrain.errors import InvalidJob, nearest
    from cloudtrain.sweep.plan import FIELDS, make_plan
    from cloudtrain.sweep.space import read_searches
    from cloudtrain.sweep.start import sweep_name

    given = {name: options.pop(name) for name in FIELDS if name in options}
    left_out = {one.name: None for one in submit.params if one.name in NOT_OF_SWEEPS}
    fields = job_fields(file, script_args, {**left_out, **options})
    own = fields.pop("sweep", None) or {}
    if not isinstance(own, Mapping):
        raise InvalidJob("sweep: not a mapping of fields", hint=f"Its fields: {', '.join(FIELDS)}.")
    for name in own:
        if name not in FIELDS:
            raise InvalidJob(f"sweep: there is no field {name!r}", hint=nearest(str(name), FIELDS))
    space, searched = own.get("space") or {}, read_searches(searches)
    if isinstance(space, Mapping):  # make_plan refuses others
        space = {**space, **searched}
    settings = {**own, **{name: value for name, value in given.items() if value is not None}}
    settings.pop("space", None)
    name = fields.get("job_name") or sweep_name(fields)
    return fields, make_plan(name, space, settings.pop("metric", None), **settings)


def _run_here(started: StartedSweep, *, as_json: bool) -> None:
    """Control the sweep in this process. Prints each trial that ends, and finally the best. Exits like `_watch`."""
    from cloudtrain.contract.text import escape_line
    from cloudtrain.sweep.started import line_of

    output = sys.stdout

    def show(ended: Trial, trials: Trials) -> None:
        if not as_json:
            with contextlib.suppress(OSError):  # its terminal was closed
                click.echo(escape_line(line_of(ended, trials)), file=output)

    with contextlib.redirect_stdout(sys.stderr):  # the log of the controller
        started.run_here(show)
    _watch(started, [trial.number for trial in started.trials.all], as_json=as_json)


def _watch(started: StartedSweep, seen: Collection[int] = (), *, as_json: bool) -> None:
    """Print each trial that ends, and finally the best. Exits with status 1 if no trial has a value."""
    from cloudtrain.contract.text import escape_line
    from cloudtrain.errors import PlatformError
    from cloudtrain.sweep.journal import LOG
    from cloudtrain.sweep.started import line_of
    from cloudtrain.sweep.trials import ORDERLY

    try:
        with _progress(quiet=as_json) as update:
            trials = None
            for trials, ended in started.follow(seen):
                update(trials)
                if ended and not as_json:
                    click.echo(escape_line(line_of(ended, trials)))
    except KeyboardInterrupt:
        click.echo(
            f"Interrupted: the sweep {started.name} continues. Attach to it with: cloudtrain sweep wait {started.name}",
            err=True,
        )
        sys.exit(INTERRUPTED)
    assert trials is not None
    if trials.finished is None:
        raise PlatformError(
            f"sweep {started.name} has no controller: it was killed, or has failed. Its trials run on.",
            hint=f"Continue it: cloudtrain sweep continue {started.name}. Its log: {started.journal.folder / LOG}",
        )
    if as_json:
        echo_json(started.describe())
    else:
        _conclude(started, trials)
    sys.exit(0 if trials.best and trials.finished in ORDERLY else 1)


def _progress(*, quiet: bool) -> Any:
    """A bar on a terminal. Yields the function that updates it."""
    from contextlib import contextmanager

    from rich.console import Console

    @contextmanager
    def shown() -> Any:
        console = Console(stderr=True)
        if quiet or not console.is_terminal:
            yield lambda trials: None
            return
        from cloudtrain.cli._output import bars

        with bars(console) as progress:
            task = progress.add_task("trials", total=None, size="")

            def update(trials: Trials) -> None:
                done, wanted = (
                    sum(one.has_ended for one in trials.all),
                    trials.plan.trials if trials.plan else 0,
                )
                best = f", best {trials.best.value:.6g}" if trials.best else ""
                size = f"{done} of {wanted}, {len(trials.open)} running{best}"
                progress.update(task, completed=done, total=wanted, size=size)

            yield update

    return shown()


def _conclude(started: StartedSweep, trials: Trials) -> None:
    from cloudtrain.cli._output import notify
    from cloudtrain.contract.text import escape_line
    from cloudtrain.sweep.trials import NO_BUDGET, ORDERLY

    if trials.finished == NO_BUDGET:
        notify("Note", "what is left of max_cost does not pay for another trial")
    elif trials.finished not in ORDERLY:
        notify("Error", escape_line(f"the sweep has ended: {trials.finished}"))
    elif trials.finished == "completed" and not trials.best:
        notify("Error", escape_line(why_no_best(trials)))
    if trials.best and trials.plan:
        click.echo(f"best: {_best_line(trials)}")
        click.echo(
            f"Train it longer: cloudtrain sweep best {started.name} --submit --set FIELD=VALUE", err=True
        )


def why_no_best(trials: Trials) -> str:
    from cloudtrain.sweep.trials import NO_VALUE

    if trials.plan and any(trial.status == NO_VALUE for trial in trials.all):
        metric = trials.plan.metric
        return f"no trial has a value of {metric}: report it with cloudtrain.log, or describe it in metric_definitions"
    return f"no trial has completed: cloudtrain describe {trials.all[-1].name} shows why"


def _best_line(trials: Trials) -> str:
    from cloudtrain.contract.text import escape_line

    best, plan = trials.best, trials.plan
    assert best and plan and best.value is not None
    chosen = " ".join(f"{name}={value}" for name, value in best.parameters.items())
    return escape_line(f"{best.name}  {plan.metric}={best.value:.6g}  {chosen}")


@command.command()
@name_argument
@json_option
def wait(name: str, as_json: bool) -> None:
    """Attach to the sweep NAME until it ends."""
    from cloudtrain.sweep import StartedSweep

    _watch(StartedSweep.attach(name), as_json=as_json)


@command.command()
@name_argument
@click.option("--trials", is_flag=True, help="Also stop the trials that run.")
@json_option
def stop(name: str, trials: bool, as_json: bool) -> None:
    """Start no further trials of the sweep NAME."""
    from cloudtrain.sweep import StartedSweep

    started = StartedSweep.attach(name)
    started.stop(trials=trials)
    if as_json:
        echo_json(started.describe())
    else:
        running = len(started.trials.open)
        what = "stopping" if trials else "running to their ends"
        click.echo(f"{name}: no further trials" + (f"; {running} are {what}" if running else ""))


@command.command("continue")
@name_argument
@click.option("--trials", type=int, default=0, metavar="N", help="Number of further trials.")
@click.option("--parallel", type=int, metavar="N", help="Trials that run at the same time.")
@click.option(
    "--search", "searches", multiple=True, metavar="NAME=VALUES", help="Change the space. Repeatable."
)
@click.option("--no-wait", is_flag=True, help="Return immediately.")
@foreground_option
@json_option
def continue_(
    name: str,
    trials: int,
    parallel: int | None,
    searches: tuple[str, ...],
    no_wait: bool,
    foreground: bool,
    as_json: bool,
) -> None:
    """Continue the sweep NAME: its controller was killed, it was stopped, or it gets more trials.

    With --search, the space changes: hyperparameters that are not named stay as they are. Trials outside of the new
    space stay in the table, and the sampler no longer learns from them.
    """
    from cloudtrain.sweep import StartedSweep
    from cloudtrain.sweep.space import read_searches, to_document

    started = StartedSweep.attach(name)
    space = None
    if searches:
        plan = started.trials.plan
        space = {**(to_document(plan.space) if plan else {}), **read_searches(searches)}
    seen = {trial.number for trial in started.trials.all if trial.has_ended}
    started.continue_(trials, space, parallel)
    if foreground:
        _run_here(started, as_json=as_json)
        return
    started.start_controller()
    if not no_wait:
        _watch(started, seen, as_json=as_json)
    elif as_json:
        echo_json(started.describe())


@command.command()
@name_argument
@json_option
def describe(name: str, as_json: bool) -> None:
    """Show the sweep NAME and all of its trials, the best first."""
    from cloudtrain.contract.text import escape_line
    from cloudtrain.cost import Cost
    from cloudtrain.sweep import StartedSweep

    started = StartedSweep.attach(name)
    found = started.describe()
    if as_json:
        echo_json(found)
        return
    trials = started.trials
    assert trials.plan is not None
    why = f": {escape_line(found['why'])}" if found["why"] else ""
    click.echo(f"{name}  {found['status']}{why}")
    click.echo(
        f"{len(trials.all)} of {trials.plan.trials} trials, {_how(trials.plan)}, seed {trials.plan.seed}"
    )
    if trials.best:
        click.echo(f"best: {_best_line(trials)}")
    if trials.cost is not None:
        cap = f" of max_cost {trials.plan.max_cost:g}" if trials.plan.max_cost else ""
        known = str(Cost(trials.cost, *trials.currencies)) if trials.currencies else f"{trials.cost:.4g}"
        click.echo(f"cost: about {known}{cap}")
    if found["repeated"]:
        click.echo(f"{found['repeated']} trials have the parameters of an earlier one")
    if trials.all:
        click.echo("")
        _show_trials(trials)


def _show_trials(trials: Trials) -> None:
    plan = trials.plan
    assert plan is not None
    sign = 1.0 if plan.goal == "minimize" else -1.0
    ordered = sorted(trials.all, key=lambda one: (one.value is None, sign * (one.value or 0.0), one.number))
    names = [*dict.fromkeys(name for trial in trials.all for name in trial.parameters)]
    rows = [
        (
            trial.name,
            trial.status,
            "" if trial.value is None else f"{trial.value:.6g}",
            *(_cell(trial.parameters.get(name, "")) for name in names),
            "; ".join(filter(None, [_origin(trial, plan), trial.why])),
        )
        for trial in ordered
    ]
    colours = [COLOURS.get(trial.status) for trial in ordered]
    print_table(["TRIAL", "STATUS", plan.metric, *names, "WHY"], rows, right=[plan.metric], colours=colours)


def _origin(trial: Trial, plan: SweepPlan) -> str:
    """The trial that a trial started from, and the step at which it was pruned."""
    began = f"from {plan.trial_name(trial.parent)}" if trial.parent is not None else ""
    ended = f"at step {trial.pruned_at}" if trial.pruned_at is not None else ""
    return ", ".join(filter(None, [began, ended]))


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the sweeps of this machine, the newest first."""
    from cloudtrain.errors import CloudtrainError
    from cloudtrain.sweep import StartedSweep
    from cloudtrain.sweep.journal import see_owners
    from cloudtrain.sweep.started import sweep_names

    found, names = [], sweep_names()
    see_owners(names)
    for name in reversed(names):
        try:
            found.append(StartedSweep.attach(name).describe())
        except CloudtrainError as error:  # the others are listed anyway
            click.echo(f"Warning: {error.message}", err=True)
    if as_json:
        echo_json(found)
        return
    rows = [
        (
            one["name"],
            one["status"],
            f"{len(one['trials'])} of {one['wanted']}",
            one["metric"],
            "" if one["best"] is None else f"{one['best']['value']:.6g}",
            one["best"]["name"] if one["best"] else "",
        )
        for one in found
    ]
    print_table(["SWEEP", "STATUS", "TRIALS", "METRIC", "BEST", "TRIAL"], rows, right=["BEST"])


@command.command()
@name_argument
@click.option("--submit", "submits", is_flag=True, help="Submit its job again, from its last checkpoint.")
@click.option(
    "--set", "settings", multiple=True, metavar="FIELD=VALUE",
    help="With --submit: change a field, for example hyperparameters.epochs=50. Repeatable.",
)  # fmt: skip
@click.option(
    "--name", "job_name", metavar="JOB", help="With --submit: the name of the job.  [default: NAME-best]"
)
@click.option("--no-wait", is_flag=True, help="With --submit: return immediately.")
@json_option
def best(
    name: str, submits: bool, settings: tuple[str, ...], job_name: str | None, no_wait: bool, as_json: bool
) -> None:
    """Show the best trial of the sweep NAME; with --submit, train it longer."""
    from cloudtrain.sweep import StartedSweep

    started = StartedSweep.attach(name)
    if submits:
        from cloudtrain.cli.submit import _report, _start, _upload
        from cloudtrain.spec import apply_overrides
        from cloudtrain.submission import prepare

        fields = apply_overrides(started.best_fields(job_name or f"{name}-best"), settings)
        submission = prepare(fields, submits=True, defaults={})
        _report(submission)
        _upload(submission, quiet=as_json)
        _start(submission, None, waits=not no_wait, as_json=as_json)
        return
    trial = started.best()
    description = started.best_job().describe()
    if as_json:
        echo_json(
            {
                **trial.to_dict(),
                "model_data": description.model_data,
                "checkpoint_uri": description.checkpoint_uri,
            }
        )
        return
    click.echo(_best_line(started.trials))
    if description.model_data:
        click.echo(f"model: {description.model_data}")
