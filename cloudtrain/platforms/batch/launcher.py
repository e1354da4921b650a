"""The part of a host launcher that all schedulers share: a job's files go to the cluster, its script into the queue."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from cloudtrain.contract import JobStatus
from cloudtrain.packaging import pack_runtime
from cloudtrain.packaging.cache import cached_archive
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.secrets_file import SECRETS, secrets_to_json
from cloudtrain.platforms.batch.submissions import SUBMISSIONS, Submission, submissions_to_json
from cloudtrain.platforms.supervised.folder import LOG, SUPERVISOR_LOG
from cloudtrain.platforms.supervised.record import JobRecord
from cloudtrain.platforms.supervised.root import JobFiles
from cloudtrain.storage import state_home

SCRIPT = "job.sh"
SHOWN = 5
"""Variables that the log names."""


class BatchLauncher(ABC):
    """Starts jobs as a `HostLauncher`. A subclass also signals them, and knows whether they are alive."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @abstractmethod
    def submit(self, job: JobFiles) -> Submission:
        """Put the script of a job, which is complete, into the queue. Raises PlatformError if it is refused."""
        ...

    def start(self, draft: JobFiles, request: Request) -> None:
        self._provide(request)
        draft.write(SCRIPT, request.body["script"].encode())
        if request.secrets:
            self._cluster.root.write_private(f"{draft.name}/{SECRETS}", secrets_to_json(request.secrets))
        draft.write(LOG, _left_out(self._cluster.left_out).encode())
        draft.write(SUPERVISOR_LOG, b"")
        draft.write_record(JobRecord(JobStatus.PENDING, submitted_at=time.time()))
        job = draft.publish(request.job_name)
        try:
            submission = self.submit(job)
        except BaseException:
            self._cluster.root.remove(job.name)
            raise
        job.write(SUBMISSIONS, submissions_to_json([submission]))

    def _provide(self, request: Request) -> None:
        """Put the runtime and the source onto the cluster, once for each hash."""
        cluster, body = self._cluster, request.body
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
