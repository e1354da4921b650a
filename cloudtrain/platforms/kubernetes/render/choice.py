"""Chooses the kind of a job's main object by what the cluster has, unless the user has chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.kubernetes.api.kinds import JOB_SET, MPI_JOB, TRAIN_JOB, Kind


@dataclass(frozen=True)
class Operator:
    """An operator, which a rendering needs."""

    kind: Kind
    name: str
    installation: str


OPERATORS = {
    "jobset": Operator(JOB_SET, "JobSet", "https://jobset.sigs.k8s.io/docs/installation"),
    "trainjob": Operator(
        TRAIN_JOB,
        "Kubeflow Trainer",
        "https://www.kubeflow.org/docs/components/trainer/operator-guides/installation",
    ),
    "mpijob": Operator(MPI_JOB, "the MPI operator", "https://github.com/kubeflow/mpi-operator#installation"),
}


class Cluster(Protocol):
    """The questions of the choice: those of `Api`."""

    def served(self, kind: Kind) -> Kind | None: ...

    def allowed(self, verb: str, kind: Kind, name: str = "") -> bool: ...


@dataclass(frozen=True)
class Choice:
    """A rendering, and why it is that one."""

    rendering: str
    why: str


def choose(requested: str, cluster: Cluster | None) -> Choice:
    """The rendering of a job.

    By default, a JobSet where the cluster has it and the user may create one, else a Job. A TrainJob or an MPIJob is
    made on request only: each has fewer of the job's options than a JobSet or a Job.

    Args:
        requested: a rendering, or ``auto``.
        cluster: None if there is no kubeconfig. A cluster that does not answer counts as one that has nothing.

    Raises:
        InvalidJob: the cluster does not have the requested kind, in the version that we render.
    """
    try:
        if requested != "auto":
            return _requested(requested, cluster)
        return (
            _found(cluster) if cluster else Choice("job", "no cluster is configured; a Job needs no operator")
        )
    except PlatformError as error:
        if requested != "auto":
            return Choice(requested, "platform_options.rendering asks for it")
        return Choice("job", f"the cluster cannot be asked for operators ({_first_line(error)})")


def _requested(rendering: str, cluster: Cluster | None) -> Choice:
    operator = OPERATORS.get(rendering)
    if operator and cluster and not _has(cluster, operator.kind):
        kind = operator.kind
        raise InvalidJob(
            f"platform_options.rendering: the cluster has no {kind.kind} of the version {kind.api_version}",
            hint=f"It comes with {operator.name}: {operator.installation}. Or leave out rendering: a Job needs no "
            "operator.",
        )
    return Choice(rendering, "platform_options.rendering asks for it")


def _found(cluster: Cluster) -> Choice:
    others = [name for name in ("trainjob", "mpijob") if _has(cluster, OPERATORS[name].kind)]
    also = f"; rendering: {' or '.join(others)} is possible, too" if others else ""
    if not _has(cluster, JOB_SET):
        return Choice("job", f"the cluster has no JobSet, and a Job needs no operator{also}")
    if not cluster.allowed("create", JOB_SET):
        return Choice("job", f"the cluster has JobSet, but you may not create {JOB_SET.resource}{also}")
    return Choice("jobset", f"the cluster has JobSet, which starts all hosts again together{also}")


def _has(cluster: Cluster, kind: Kind) -> bool:
    """Whether the cluster has ``kind`` in the version that we render."""
    found = cluster.served(kind)
    return found is not None and found.version == kind.version


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
