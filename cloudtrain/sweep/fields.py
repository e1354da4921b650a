"""The fields of the jobs of trials: those of the sweep, with the parameters, the name and the place of one trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain.errors import CloudtrainError, InvalidJob, JobNotFound
from cloudtrain.platforms import Places, Platform
from cloudtrain.storage import join_uri
from cloudtrain.sweep.plan import SweepPlan
from cloudtrain.sweep.trials import Trial

SWEEP_VARIABLE, TRIAL_VARIABLE = "CLOUDTRAIN_SWEEP", "CLOUDTRAIN_TRIAL"


def trial_fields(plan: SweepPlan, trial: Trial) -> dict[str, Any]:
    """The fields of a trial's job: those of the sweep, with the trial's name, parameters and checkpoint URI."""
    fields = dict(plan.fields)
    fields["job_name"] = trial.name
    fields["platform"] = plan.platform
    fields["hyperparameters"] = {**(fields.get("hyperparameters") or {}), **trial.parameters}
    fields["environment"] = {
        **(fields.get("environment") or {}),
        SWEEP_VARIABLE: f"{plan.name}/{plan.id}",
        TRIAL_VARIABLE: str(trial.number),
    }
    caps = [cap for cap in (fields.get("max_cost"), trial.max_cost) if cap is not None]
    if caps:
        fields["max_cost"] = min(caps)
    if fields.get("checkpoint_s3_uri"):  # each trial has its own, so that none resumes from another
        fields["checkpoint_s3_uri"] = join_uri(fields["checkpoint_s3_uri"], trial.name)
    return fields


def placed_fields(plan: SweepPlan, trial: Trial, platform: Platform) -> Mapping[str, Any]:
    """`trial_fields` with machines and GPUs that no concurrent trial uses. Raises InvalidJob."""
    fields = trial_fields(plan, trial)
    if not isinstance(platform, Places):
        return fields
    return platform.placed(fields, trial.slot, plan.parallel, plan.trials_per_host)


def check_places(plan: SweepPlan, platform: Platform) -> None:
    """Raises InvalidJob if concurrent trials would have to share machines or GPUs."""
    if isinstance(platform, Places):
        for slot in range(plan.parallel):
            platform.placed(plan.fields, slot, plan.parallel, plan.trials_per_host)
    elif plan.trials_per_host is not None:
        raise InvalidJob(
            f"trials_per_host: on {plan.platform} each trial is a separate job, and its scheduler gives it a place",
            hint="Request a part of a host for each trial, or run the whole sweep inside of one job, with "
            "--platform local --trials-per-host N --foreground. See docs/guides/sweeps.md.",
        )


def check_shares(before: SweepPlan, after: SweepPlan, trials: Sequence[Trial], platform: Platform) -> None:
    """Raises InvalidJob if a new ``parallel`` moves the shares of hosts while a trial may still run in its old share.

    Args:
        before: the old plan.
        after: the new plan.
        trials: the trials without an end in the events of the sweep.
        platform: the platform of the trials.
    """
    if not trials or not isinstance(platform, Places) or not _have_moved(before, after, platform):
        return
    busy = next((trial.name for trial in trials if _may_run(trial.name, platform)), None)
    if busy:
        raise InvalidJob(
            f"parallel: {busy} still runs, or may, in its share of the hosts, which new trials would overlap with "
            f"parallel {after.parallel} instead of {before.parallel}",
            hint=f"Wait for its end: cloudtrain wait {busy}. Or continue without --parallel.",
        )


def _have_moved(before: SweepPlan, after: SweepPlan, platform: Places) -> bool:
    kept = range(min(before.parallel, after.parallel))
    new, old = (
        [(plan.fields, slot, plan.parallel, plan.trials_per_host) for slot in kept]
        for plan in (after, before)
    )
    try:
        return [platform.placed(*one) for one in new] != [platform.placed(*one) for one in old]
    except InvalidJob:  # resources of the old plan, such as a GPU, no longer exist
        return True


def _may_run(name: str, platform: Platform) -> bool:
    """Whether a job has not ended; true if that is unknown."""
    try:
        return not platform.describe(name).status.is_final
    except JobNotFound:
        return False
    except CloudtrainError:
        return True
