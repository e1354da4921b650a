"""The part of a request that is the same for all schedulers."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.common.hyperparameters import launcher_of
from cloudtrain.spec import TrainingJob


def ranks_on_node(job: TrainingJob, gpus: int | None) -> int:
    """How many ranks each node has, as far as that is known here: one for each of ``gpus``, if the job does not say.

    Raises InvalidJob, as `launcher_of` does.
    """
    return launcher_of(job).processes_per_host or gpus or 1


def with_source_on_cluster(job: TrainingJob, cluster: Cluster) -> TrainingJob:
    """``job`` with the URI that its source will have. A source that is packed on this machine is copied there."""
    source = job.source
    if not source or not source.sha256 or not source.uri.startswith("file://"):
        return job
    uri = PurePosixPath(cluster.source_file(source.sha256)).as_uri()
    return msgspec.structs.replace(job, source=msgspec.structs.replace(source, uri=uri))
