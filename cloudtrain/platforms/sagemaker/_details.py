"""The facts of a description that only SageMaker has, for display."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from cloudtrain.contract import decode_arguments
from cloudtrain.contract.request_body import argument_details
from cloudtrain.platforms.sagemaker.training_job import host_count, instance_groups


def details(answer: Mapping[str, Any]) -> dict[str, str]:
    """By name, the facts in a response of DescribeTrainingJob."""
    found: dict[str, str] = {}
    with contextlib.suppress(ValueError):  # a job of another client, which has a hyperparameter of this name
        found.update(argument_details(decode_arguments(answer.get("HyperParameters", {}))))
    return {**found, **_instances(answer), **_progress(answer), **_services(answer)}


def _instances(answer: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    resources = answer.get("ResourceConfig", {})
    groups, preferences = instance_groups(resources), resources.get("InstancePreferences", ())
    if groups:
        found["instances"] = ", ".join(
            f"{group['InstanceCount']} x {group['InstanceType']}" for group in groups
        )
    if preferences:
        kinds = [one["InstanceType"] for one in preferences]
        if groups:
            place = kinds.index(groups[0]["InstanceType"]) + 1 if groups[0]["InstanceType"] in kinds else None
            found["selected"] = f"preference {place} of {len(kinds)}" if place else "another type"
        else:
            found["instances"] = f"not selected yet: {', '.join(kinds)}"
    training, billable = answer.get("TrainingTimeInSeconds"), answer.get("BillableTimeInSeconds")
    if training is not None:
        found["training"] = f"{training:,} s"
    if billable is not None:
        on_each = " on each instance" if host_count(resources) > 1 else ""
        found["billable"] = f"{billable:,} s{on_each}"
    if answer.get("EnableManagedSpotTraining") and training and billable is not None:
        found["spot saving"] = f"{100 * (1 - billable / training):.0f} %"
    pool = answer.get("WarmPoolStatus")
    if pool:
        kept = pool.get("ResourceRetainedBillableTimeInSeconds")
        found["warm pool"] = (
            pool["Status"]
            + (f" by {pool['ReusedByJob']}" if "ReusedByJob" in pool else "")
            + (f", kept {kept:,} s" if kept is not None else "")
        )
    return found


def _progress(answer: Mapping[str, Any]) -> dict[str, str]:
    """The progress, as far as SageMaker knows it: ``epoch 2 of 5, step 120 of 400``."""
    progress = answer.get("ProgressInfo") or {}
    parts = [
        f"{name} {progress[current]:,}" + (f" of {progress[total]:,}" if progress.get(total) else "")
        for name, current, total in (
            ("epoch", "CurrentEpoch", "MaxEpoch"),
            ("step", "CurrentStep", "TotalStepCountPerEpoch"),
        )
        if progress.get(current) is not None
    ]
    return {"progress": ", ".join(parts)} if parts else {}


def _services(answer: Mapping[str, Any]) -> dict[str, str]:
    """The run in managed MLflow, and the model package that the job made."""
    found: dict[str, str] = {}
    config, run = answer.get("MlflowConfig") or {}, answer.get("MlflowDetails") or {}
    if config or run:
        parts = {
            "": config.get("MlflowResourceArn"),
            "experiment ": config.get("MlflowExperimentName") or run.get("MlflowExperimentId"),
            "run ": run.get("MlflowRunId") or config.get("MlflowRunName"),
        }
        found["mlflow"] = ", ".join(f"{name}{value}" for name, value in parts.items() if value)
    package = answer.get("OutputModelPackageArn")
    if package:
        found["model package"] = package
    return found
