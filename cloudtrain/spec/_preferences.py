"""Validates ``instance_preferences``: what SageMaker says about them, before it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudtrain.errors import InvalidJob

if TYPE_CHECKING:
    from cloudtrain.spec.job import TrainingJob

MOST_PREFERENCES = 5
"""The limit of a training job (CreateTrainingJob, ``InstancePreferences``)."""


def check_preferences(job: TrainingJob) -> None:
    """Raises InvalidJob for the first contradiction between the preferences, or with another field."""
    preferences = job.instance_preferences
    if len(preferences) > MOST_PREFERENCES:
        raise InvalidJob(
            f"instance_preferences: there are {len(preferences)}, and SageMaker accepts {MOST_PREFERENCES}",
            hint="Keep the best ones.",
        )
    for field, hint in (
        ("instance_type", "Put it first in the list."),
        (
            "instance_groups",
            "Use one or the other: a job has either one type, chosen from the list, or groups.",
        ),
        ("instance_placement_config", "It needs one instance_type."),
        ("use_spot_instances", "The list has on-demand instances and training plans only."),
    ):
        if getattr(job, field):
            raise InvalidJob(f"instance_preferences: cannot be combined with {field}", hint=hint)
    types = [preference.instance_type for preference in preferences]
    for number, kind in enumerate(types):
        if kind in types[:number]:
            raise InvalidJob(
                f"instance_preferences[{number}].instance_type: {kind} is in the list already",
                hint="Name each instance type once.",
            )
    _check_counts(job)
    planned = [number for number, one in enumerate(preferences) if one.training_plan_arns]
    if job.training_plan and planned:
        raise InvalidJob(
            f"training_plan: instance_preferences[{planned[0]}] has its own training_plan_arns",
            hint="Give each preference its own plan, or set training_plan for all.",
        )


def _check_counts(job: TrainingJob) -> None:
    """Either every preference has an instance_count, or none has."""
    counted = [one.instance_count is not None for one in job.instance_preferences]
    if any(counted) and not all(counted):
        raise InvalidJob(
            f"instance_preferences[{counted.index(False)}]: has no instance_count, but others have",
            hint="Give every preference its instance_count, or none: instance_count is then that of the job.",
        )
    if any(counted) and job.instance_count != 1:
        raise InvalidJob(
            "instance_count: every preference in instance_preferences has its own",
            hint="Remove the count of the job, or those of the preferences.",
        )
