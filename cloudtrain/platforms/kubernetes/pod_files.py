"""The files that a pod finds, which `pod_start` reads."""

from __future__ import annotations

from pathlib import Path

from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.packaging.zipapp import RUNTIME_FILE

MOUNTS = "/cloudtrain"
"""Where cloudtrain's files are mounted: ``config``, ``runtime`` and ``secret``."""

START_KEY = "start.py"
START = f"{MOUNTS}/config/{START_KEY}"
POD_START = Path(__file__).with_name("pod_start.py")
"""The program that a pod starts, on this machine."""

SOURCE_KEY = "sourcedir.tar.gz"
SOURCE_PATH = f"{DEFAULT_BASE}/input/data/code/{SOURCE_KEY}"
"""Where `pod_start` puts the source, in the channel that the runtime hides from the script."""
RUNTIME_KEY = f"{RUNTIME_FILE}.gz"

JOB_SECRET = "job-secret"
"""The key of the Secret with what the job's hosts share."""
RUNTIME_URL, SOURCE_URL, BOTO3_URL = URLS = "runtime-url", "source-url", "boto3-url"
"""The keys of the Secret with presigned URLs, where S3 delivers. The ``s3://`` URI and the SHA-256 follow a URL."""


def runtime_map(job_name: str) -> str:
    """The name of the ConfigMap with the bundled runtime."""
    return f"{job_name}-runtime"
