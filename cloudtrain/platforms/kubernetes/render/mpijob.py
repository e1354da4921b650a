"""A job as an MPIJob of Kubeflow's MPI operator: a launcher, which leads, and workers, which have the ranks.

The workers run cloudtrain's runtime instead of sshd, and the launcher sends them their commands through it. What the
operator prepares for ``mpirun`` over ssh is there, but unused.
"""

from __future__ import annotations

from typing import Any

from cloudtrain.platforms.kubernetes.labels import LAUNCHER, ROLE, WORKER
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.pod_files import START
from cloudtrain.platforms.kubernetes.render.gang import gang_of
from cloudtrain.platforms.kubernetes.render.main_object import main_object
from cloudtrain.platforms.kubernetes.render.names import check_name
from cloudtrain.platforms.kubernetes.render.objects import service
from cloudtrain.platforms.kubernetes.render.parts import HostNames, Parts
from cloudtrain.platforms.kubernetes.render.pod import pod_template
from cloudtrain.spec import TrainingJob

SSH_FOLDER = "/cloudtrain/ssh"
"""Where the operator mounts its keys. Its default, /root/.ssh, would hide a folder of the image."""
LEADER = "-leader"
"""The end of the name of the Service with the launcher's address."""
OPTIONS = ("mpi_implementation", "launcher_as_worker")
_LAUNCHER_POD = "-launcher-xxxxx"


def host_names(job: TrainingJob) -> HostNames:
    """The launcher, and a worker for each host of the job; with ``launcher_as_worker``, one worker less.

    Workers find the leader at a Service of the job's own: that of the operator has the launcher's address only in newer
    versions, and only once it is ready. Raises InvalidJob.
    """
    assert job.job_name, "a job is named before it is rendered"
    name, workers = job.job_name, job.host_count - KubernetesOptions.of(job).launcher_as_worker
    check_name(name, max(_LAUNCHER_POD, f"-worker-{max(0, workers - 1)}", key=len))
    names = (f"{name}-launcher", *(f"{name}-worker-{index}" for index in range(workers)))
    return HostNames(names, name, leader=f"{name}{LEADER}")


def settings(_: TrainingJob, options: KubernetesOptions) -> dict[str, Any]:
    """The launcher leads, and prints what all workers print. The runtime's mpirun needs no ssh and no file of hosts."""
    return {
        "no_ranks": not options.launcher_as_worker,
        "forward_output": True,
        "dropped_variables": ",".join(("K_MPI_JOB_ROLE", *_MPI_VARIABLES[options.mpi_implementation])),
    }


_MPI_VARIABLES = {
    "OpenMPI": (
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "OMPI_MCA_orte_default_hostfile",
        "OMPI_MCA_plm_rsh_args",
        "OMPI_MCA_orte_set_default_slots",
    ),
    "MPICH": ("HYDRA_HOST_FILE", "HYDRA_LAUNCH_EXTRA_ARGS"),
    "Intel": ("I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "I_MPI_PERHOST"),
}
"""The variables that the operator sets for an mpirun of the image."""


def helpers(parts: Parts) -> list[dict[str, Any]]:
    """The Service with the launcher's address. The operator makes the others, and the group of the pods."""
    return [service(parts, f"{parts.name}{LEADER}", {ROLE: LAUNCHER})]


def render_mpijob(parts: Parts) -> dict[str, Any]:
    """The MPIJob. The operator creates a Service, the launcher's Job and the workers' pods. Raises InvalidJob.

    The launcher's Job counts each of its failed pods, whatever the exit code. Therefore the launcher starts again
    within its pod after the loss of a worker. A worker's container starts again in place, and joins the next leader.
    """
    options = parts.options
    workers = len(parts.hosts.names) - 1
    launcher = pod_template(
        parts,
        role=LAUNCHER,
        has_ranks=options.launcher_as_worker,
        environment={"CLOUDTRAIN_RESTART_PROGRAM": START},
    )
    replicas: dict[str, Any] = {
        "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": _of_operator(launcher)}
    }
    if workers:
        worker = pod_template(parts, role=WORKER)
        replicas["Worker"] = {
            "replicas": workers,
            "restartPolicy": "OnFailure",
            "template": _of_operator(worker),
        }
    policy: dict[str, Any] = {
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": options.ttl,
        "backoffLimit": parts.job.max_retry_attempts,
    }
    if options.gang in ("volcano", "coscheduling"):
        policy["schedulingPolicy"] = _scheduling_policy(options, workers + 1)
    if gang_of(parts).is_suspended:
        policy["suspend"] = True
    spec = {
        "slotsPerWorker": _slots(parts),
        "runLauncherAsWorker": options.launcher_as_worker,
        "mpiImplementation": options.mpi_implementation,
        "sshAuthMountPath": SSH_FOLDER,
        "runPolicy": policy,
        "mpiReplicaSpecs": replicas,
    }
    return main_object(parts, "kubeflow.org/v2beta1", "MPIJob", spec)


def _of_operator(template: dict[str, Any]) -> dict[str, Any]:
    """``template`` without the fields that the operator sets, and warns about."""
    spec = {name: value for name, value in template["spec"].items() if name not in _OPERATORS_FIELDS}
    return {**template, "spec": spec}


_OPERATORS_FIELDS = ("restartPolicy", "subdomain", "hostname")


def _scheduling_policy(options: KubernetesOptions, pods: int) -> dict[str, Any]:
    """From which the operator makes the PodGroup."""
    policy: dict[str, Any] = {"minAvailable": pods}
    if options.queue:
        policy["queue"] = options.queue
    if options.priority_class:
        policy["priorityClass"] = options.priority_class
    return policy


def _slots(parts: Parts) -> int:
    """The ranks of each host, as the operator's file of hosts says."""
    kinds = parts.job.distribution.enabled.values() if parts.job.distribution else ()
    given = [getattr(kind, "processes_per_host", None) for kind in kinds]
    return next((count for count in given if count), parts.options.gpus or 1)
