"""The labels and annotations of the objects of cloudtrain's jobs, and the paths of the files in a pod."""

from __future__ import annotations

from pathlib import Path

from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.packaging.zipapp import RUNTIME_FILE

MANAGED_BY = "app.kubernetes.io/managed-by"
CLOUDTRAIN = "cloudtrain"
JOB = "cloudtrain/job"
"""The job's name, on every object and pod of the job."""
ROLE = "cloudtrain/role"
"""The pod's part in the job: `WORKER`, or `LAUNCHER` of an MPIJob."""
WORKER = "worker"
LAUNCHER = "launcher"
SETTINGS = "cloudtrain/settings"
"""An annotation of the main object: settings of the job for `describe`, as JSON without secrets."""
STOPPED = "cloudtrain/stopped"
"""An annotation of a main object that a user has stopped: the time, in the format of the API."""
FAILED = "cloudtrain/failed"
"""An annotation of the main object of a job that cloudtrain has given up: the `FailureReport` as JSON."""
ENDING = "cloudtrain/ending"
"""An annotation of a main object: the leader's `Ending` as JSON, because a stop deletes the pods that have it."""
UNRELEASED = "cloudtrain/unreleased"
"""An annotation of a main object that waits for the objects that it owns: its submission has not finished."""
QUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue's label on the main object: its queue."""
WORKLOAD_LABEL = "kueue.x-k8s.io/job-uid"
"""Kueue's label on a Workload: the uid of its main object."""
NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
"""On pods: a proxy of Istio would continue to run after the end of the script, and the job would never complete."""
ALL_JOBS = f"{MANAGED_BY}={CLOUDTRAIN}"
"""The label selector of all jobs."""
CONTAINER = "train"
"""The name of the container that runs the job."""
MOUNTS = "/cloudtrain"
"""Where cloudtrain's files are mounted: ``config``, ``runtime`` and ``secret``."""
START_KEY = "start.py"
START = f"{MOUNTS}/config/{START_KEY}"
POD_START = Path(__file__).with_name("pod_start.py")
"""The path on this machine of the program that starts a pod."""
SOURCE_KEY = "sourcedir.tar.gz"
SOURCE_PATH = f"{DEFAULT_BASE}/input/data/code/{SOURCE_KEY}"
"""Where `pod_start` stores the source, in the channel that the runtime hides from the script."""
RUNTIME_KEY = f"{RUNTIME_FILE}.gz"

JOB_SECRET = "job-secret"
"""The key in the Secret of the secret that the job's hosts share."""
RUNTIME_URL, SOURCE_URL, BOTO3_URL = URLS = "runtime-url", "source-url", "boto3-url"
"""The keys of presigned URLs in the Secret, for delivery by S3. The ``s3://`` URI and the SHA-256 follow each URL."""


def job_labels(job_name: str) -> dict[str, str]:
    """The labels of every object of a job."""
    return {MANAGED_BY: CLOUDTRAIN, JOB: job_name}


def job_selector(job_name: str) -> str:
    """The label selector of the objects and pods of one job."""
    return f"{JOB}={job_name}"


def runtime_map(job_name: str) -> str:
    """The name of the ConfigMap with the bundled runtime."""
    return f"{job_name}-runtime"
