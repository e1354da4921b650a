"""The labels and annotations by which cloudtrain finds the objects of its jobs."""

from __future__ import annotations

MANAGED_BY = "app.kubernetes.io/managed-by"
CLOUDTRAIN = "cloudtrain"
JOB = "cloudtrain/job"
"""The job's name, on every object and pod of the job."""
ROLE = "cloudtrain/role"
"""On pods, which part of the job they are: `WORKER`, or `LAUNCHER` of an MPIJob."""
WORKER = "worker"
LAUNCHER = "launcher"
SETTINGS = "cloudtrain/settings"
"""An annotation of the main object: what `describe` says about the job, as JSON. It has no secrets."""
STOPPED = "cloudtrain/stopped"
"""An annotation of a main object that a user has stopped: when, as a time of the API."""
FAILED = "cloudtrain/failed"
"""An annotation of a main object that cloudtrain has given up: the `FailureReport` as JSON."""
ENDING = "cloudtrain/ending"
"""An annotation of a main object: the leader's `Ending` as JSON, kept because a stop deletes the pods that have it."""

UNRELEASED = "cloudtrain/unreleased"
"""An annotation of a main object that waits for the objects that it owns: its submission has not finished."""

QUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue's label of the main object: its queue."""

NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
"""On pods: a proxy of Istio would run on when the script has ended, and the job would never be complete."""

ALL_JOBS = f"{MANAGED_BY}={CLOUDTRAIN}"
"""The label selector of all jobs."""

CONTAINER = "train"
"""The name of the container that runs the job."""


def job_labels(job_name: str) -> dict[str, str]:
    """The labels of every object of a job."""
    return {MANAGED_BY: CLOUDTRAIN, JOB: job_name}


def job_selector(job_name: str) -> str:
    """The label selector of the objects and pods of one job."""
    return f"{JOB}={job_name}"
