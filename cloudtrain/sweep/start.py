"""`Sweep`: describes a sweep and starts it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cloudtrain.config import read_config
from cloudtrain.cost.terms import check_projection, projection_of_sweep
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms import Places, Request, get_platform
from cloudtrain.platforms.registry import ON_THIS_MACHINE
from cloudtrain.spec import TrainingJob, new_job_name
from cloudtrain.spec.names import existing_to_uri
from cloudtrain.spec.secrets import redact
from cloudtrain.storage.atomic import publish, temporary_name
from cloudtrain.submission import Submission, default_platform, prepare
from cloudtrain.sweep.fields import check_places, placed_fields
from cloudtrain.sweep.journal import CHECKPOINTS, SOURCE, Journal, sweeps_home
from cloudtrain.sweep.plan import Options, SweepPlan, check_metric, make_plan
from cloudtrain.sweep.population import check_checkpoints
from cloudtrain.sweep.started import StartedSweep
from cloudtrain.sweep.suggest import suggestions
from cloudtrain.sweep.trials import Trial

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from cloudtrain.estimator import Estimator, Inputs

LONGEST_BASE = 30
"""The most characters of a generated name before the time and the number of the trial."""
LARGEST_SCRIPT = 1 << 20
"""The most bytes of a source file that is searched for the name of the metric."""


class Sweep:
    """Many jobs of one estimator, whose hyperparameters are chosen to find the best value of a metric.

    >>> sweep = Sweep(Estimator("train.py"), {"lr": "log:1e-5..1e-1"}, "val:accuracy", trials=20)  # doctest: +SKIP
    >>> sweep.fit().best().parameters                                                             # doctest: +SKIP
    {'lr': 0.003}

    Args:
        estimator: the job that trials vary.
        space: hyperparameters by name, each with a range (``"log:1e-5..1e-1"``, ``"0.0..0.5"``, ``"1..8"``), a list of
            choices, or a parameter of the SageMaker SDK, such as ``ContinuousParameter``.
        metric: the metric that trials report, with ``cloudtrain.log`` or through ``metric_definitions``. Its last value
            counts.
        goal: ``maximize`` or ``minimize``. Default: the goal that the name of the metric implies.
        trials: the number of trials. Default: 20, or all points of a grid.
        parallel: the number of trials that run at the same time.
        sampler: ``tpe``, ``cmaes``, ``random``, ``quasi-random``, ``grid``, or ``pbt`` for population based training.
        pruner: ``asha``, ``hyperband`` or ``median``. It ends trials early that are worse than others at the same step.
        prune_after: the first step at which a trial can be pruned; with ``pbt``, the number of steps between
            comparisons.
        seed: the seed of the sampler. Equal seeds give equal first suggestions.
        max_cost: the most that all trials may cost in total. Each trial gets its share as the ``max_cost`` of its job.
        trials_per_host: the number of trials that share a host and its GPUs, and the default of ``parallel``. Only for
            platforms without a scheduler: ``local``, ``hosts``, ``container``.
        name: the name of the sweep, whose trials are called ``NAME-0000`` and so on. Default: the name of the script
            and the time.

    Raises:
        InvalidJob: an argument is invalid.
    """

    def __init__(
        self,
        estimator: Estimator,
        space: Mapping[str, Any],
        metric: str,
        *,
        name: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        if estimator._platform is not None or estimator._session is not None:
            raise InvalidJob(
                "estimator: its platform or session is an object of this process, which a sweep outlives",
                hint="Give the platform by its name, and the credentials of AWS by a profile or variables.",
            )
        self.estimator = estimator
        self.space, self.metric, self.name, self._options = space, metric, name, options
        make_plan(name or "sweep", space, metric, **options)

    def prepare(self, inputs: Inputs | None = None) -> Request:
        """The request of the first trial, with secrets as ``***``, for a dry run. Raises the errors of `fit`."""
        with self.estimator._cloned(self.estimator._fields(inputs, None, None)) as fields:
            plan = make_plan(self.name or sweep_name(fields), self.space, self.metric, **self._options)
            _, submission = _first_trial({**read_config(), **fields}, plan)
        if submission.caches:
            submission.caches.close()
        return submission.request

    def fit(self, inputs: Inputs | None = None, *, wait: bool = True) -> StartedSweep:
        """Start the sweep in the background and, by default, wait until it ends.

        Raises:
            InvalidJob, InvalidSource, PlatformError: as `Estimator.fit`; nothing has been submitted.
        """
        started = self._start(inputs)
        if wait:
            started.wait()
        return started

    def _start(self, inputs: Inputs | None) -> StartedSweep:
        """Start the sweep in the background. Warnings point to the line that called the caller."""
        with self.estimator._cloned(self.estimator._fields(inputs, None, None)) as fields:
            name = self.name or sweep_name(fields)
            plan = make_plan(name, self.space, self.metric, **self._options)
            started = create({**read_config(), **fields}, plan, stacklevel=4)
        started.start_controller()
        return started


def sweep_name(fields: Mapping[str, Any]) -> str:
    """A new name for a sweep of this job."""
    base = fields.get("base_job_name") or Path(str(fields.get("entry_point") or "sweep")).stem
    return new_job_name(str(base)[:LONGEST_BASE])


def create(fields: Mapping[str, Any], plan: SweepPlan, *, stacklevel: int = 2) -> StartedSweep:
    """Write the first event of a sweep, with its job and its source in their present state, without starting anything.

    Args:
        fields: the fields of the job that trials vary.
        plan: the checked plan of the sweep.
        stacklevel: the ``stacklevel`` of ``warnings.warn`` in this function.

    Raises:
        InvalidJob: the job is invalid, a sweep of this name exists, the metric has no source, or a library is missing.
        InvalidSource, PlatformError: as for `prepare`.
    """
    folder = sweeps_home() / plan.name
    if folder.exists():
        raise InvalidJob(
            f"there is already a sweep {plan.name}",
            hint=f"Choose another name, or continue it: cloudtrain sweep continue {plan.name}",
        )
    given, submission = _first_trial(fields, plan)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder.with_name(temporary_name())
    draft.mkdir(mode=0o700)
    try:
        given |= _keep_source(submission, draft, folder)
        plan = replace(plan, fields=given, platform=submission.platform.name)
        text = _text(draft / SOURCE)
        check_metric(plan, text)
        if plan.sampler == "pbt":
            if plan.platform in ON_THIS_MACHINE:
                given["checkpoint_s3_uri"] = given.get("checkpoint_s3_uri") or (folder / CHECKPOINTS).as_uri()
            check_checkpoints(given, text)
        Journal(draft).append("created", plan=plan.to_dict())
        publish(draft, folder)
        for warning in submission.job_warnings:
            warnings.warn(warning, stacklevel=stacklevel)
    except BaseException:
        from cloudtrain._system.trees import remove_tree

        remove_tree(draft)
        raise
    finally:
        if submission.caches:
            submission.caches.close()
    most = projection_of_sweep(submission.job, plan.platform, plan.trials, plan.max_cost)
    return StartedSweep(Journal(folder), most)


def _first_trial(fields: Mapping[str, Any], plan: SweepPlan) -> tuple[dict[str, Any], Submission]:
    """The fields of the job that trials vary, as a plan stores them, and the first trial, not yet submitted."""
    given = {name: value for name, value in msgspec.to_builtins(dict(fields)).items() if name != "job_name"}
    _check_secrets(given)
    given["inputs"] = _absolute_inputs(given.get("inputs") or {})
    job = TrainingJob.from_dict(given)
    platform = get_platform(job.platform or default_platform(job))
    if isinstance(platform, Places):
        given = {**platform.placed(given, 0, 1, None)}  # a path of a hosts file is replaced by its hosts
    plan = replace(plan, fields=given, platform=platform.name)
    check_places(plan, platform)
    chosen, _ = suggestions(plan, ()).ask(0)  # raises the error of a missing library now
    first = Trial(0, plan.trial_name(0), chosen, 0.0)
    first.max_cost = plan.max_cost and plan.max_cost / plan.parallel
    submission = prepare(placed_fields(plan, first, platform), platform, is_share=True, defaults={})
    try:
        for cap, whose in ((job.max_cost, "its"), (plan.max_cost, "the sweep's")):
            check_projection(submission.job, job.max_run, cap, whose)
    except InvalidJob:
        if submission.caches:
            submission.caches.close()
        raise
    return given, submission


def _check_secrets(fields: Mapping[str, Any]) -> None:
    environment = fields.get("environment") or {}
    hidden = [name for name, value in redact(environment).items() if value != environment[name]]
    if hidden:
        raise InvalidJob(
            f"environment: {hidden[0]} looks like a secret, and a sweep stores the environment of its trials",
            hint=f"Pass it by its name: --secret {hidden[0]}, or secrets=[{hidden[0]!r}]",
        )


def _absolute_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Channels with absolute URIs, because the controller has a different working folder."""
    return {
        name: {**one, "s3_data": existing_to_uri(one["s3_data"])}
        if isinstance(one, Mapping) and "s3_data" in one
        else existing_to_uri(one)
        for name, one in inputs.items()
    }


def _keep_source(submission: Submission, draft: Path, folder: Path) -> dict[str, Any]:
    """Copy the packed source into the sweep's folder, so that all trials run the source as it was at the start.

    Returns the fields that refer to it.
    """
    if submission.archive is None:
        return {}
    from cloudtrain.runtime.inputs.unpack import unpack

    unpack(submission.archive.path, draft / SOURCE, submission.archive.sha256, submission.job.source_limits)
    return {
        "source_dir": str(folder / SOURCE),
        "entry_point": submission.job.entry_point,
        "dependencies": [],
    }


def _text(folder: Path) -> str:
    """The source as one text, without large files."""
    parts = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and path.stat().st_size <= LARGEST_SCRIPT:
                parts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(parts)
