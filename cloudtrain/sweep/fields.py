"""The jobs of trials: the fields of the sweep, with the parameters, the name and the place of one trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms import Places, Platform
from cloudtrain.storage import join_uri
from cloudtrain.sweep.plan import SweepPlan
from cloudtrain.sweep.trials import Trial

SWEEP_VARIABLE, TRIAL_VARIABLE = "CLOUDTRAIN_SWEEP", "CLOUDTRAIN_TRIAL"


def trial_fields(plan: SweepPlan, trial: Trial) -> dict[str, Any]:
    """The fields of the job of a trial: those of the sweep, with its name, parameters and checkpoints."""
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
    if fields.get("checkpoint_s3_uri"):  # trials are different trainings: none resumes from another
        fields["checkpoint_s3_uri"] = join_uri(fields["checkpoint_s3_uri"], trial.name)
    return fields


def placed_fields(plan: SweepPlan, trial: Trial, platform: Platform) -> Mapping[str, Any]:
    """`trial_fields` with machines and GPUs that no other trial uses meanwhile. Raises InvalidJob."""
    fields = trial_fields(plan, trial)
    if not isinstance(platform, Places):
        return fields
    return platform.placed(fields, trial.slot, plan.parallel, plan.trials_per_host)


def check_places(plan: SweepPlan, platform: Platform) -> None:
    """Raises InvalidJob if not all trials that run at the same time have their own machines and GPUs."""
    if isinstance(platform, Places):
        for slot in range(plan.parallel):
            platform.placed(plan.fields, slot, plan.parallel, plan.trials_per_host)
    elif plan.trials_per_host is not None:
        raise InvalidJob(
            f"trials_per_host: on {plan.platform} each trial is a separate job, and its scheduler gives it a place",
            hint="Request a part of a host for each trial, or run the whole sweep inside of one job, with "
            "--platform local --trials-per-host N --foreground. See docs/guides/sweeps.md.",
        )
