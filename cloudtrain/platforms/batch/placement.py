"""Puts the files of a job onto a cluster, before its script goes into a queue."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cloudtrain.contract import JobStatus
from cloudtrain.packaging import pack_runtime
from cloudtrain.packaging.cache import cached_archive
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.supervised.root import JobFiles
from cloudtrain.runtime.supervisor.folder import LOG, SUPERVISOR_LOG
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.runtime.supervisor.secrets_file import SECRETS, secrets_to_json
from cloudtrain.storage import state_home

SCRIPT = "job.sh"
SHOWN = 5
"""Variables that the log names."""


def place_job(cluster: Cluster, draft: JobFiles, request: Request) -> None:
    """Write all files of a job into its folder, and what it shares with others next to it."""
    _provide(cluster, request)
    draft.write(SCRIPT, request.body["script"].encode())
    if request.secrets:
        cluster.root.write_private(f"{draft.name}/{SECRETS}", secrets_to_json(request.secrets))
    draft.write(LOG, _left_out(cluster.left_out).encode())
    draft.write(SUPERVISOR_LOG, b"")
    draft.write_record(JobRecord(JobStatus.PENDING, submitted_at=time.time()))


def forget_secrets(cluster: Cluster, job: JobFiles) -> None:
    """Empty the file with the secrets of a job that has ended without its batch step, which removes it."""
    if job.exists(SECRETS):
        cluster.root.write_private(f"{job.name}/{SECRETS}", secrets_to_json({}))


def _provide(cluster: Cluster, request: Request) -> None:
    """Put the runtime and the source onto the cluster, once for each hash."""
    body = request.body
    cluster.root.provide(
        body["bundled_runtime"], lambda: pack_runtime(state_home() / "runtime").path.read_bytes()
    )
    sha256 = body["settings"].get("source_sha256")
    if sha256:
        cluster.root.provide(cluster.source_file(sha256), lambda: cached_archive(sha256).read_bytes())


def _left_out(names: Sequence[str]) -> str:
    """The line that says which variables the job does not get; empty if it gets all of them."""
    if not names:
        return ""
    shown = ", ".join([*names[:SHOWN], *(["..."] if names[SHOWN:] else [])])
    return f"[cloudtrain] submitted from inside another job, whose variables this one does not get: {shown}\n"
