"""A job as an Indexed Job, which every cluster runs, as a JobSet, or as a TrainJob or an MPIJob of Kubeflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from cloudtrain.contract.failure import FINAL_CODE
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.kubernetes.api.kinds import JOB, JOB_SET, MPI_JOB, TRAIN_JOB, Kind
from cloudtrain.platforms.kubernetes.labels import LAUNCHER, ROLE, SETTINGS, START, job_labels
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.render.objects import (
    LONGEST,
    RESTART_EXIT_CODE,
    HostNames,
    Parts,
    gang_of,
    name_of,
    refuse_if,
    service,
)
from cloudtrain.platforms.kubernetes.render.pod import pod_template
from cloudtrain.spec import TrainingJob

NODE = "node"
"""The name of the only replicated job of a JobSet, as in Kubeflow's runtimes."""

_DISRUPTED: list[Any] = [{"type": "DisruptionTarget", "status": "True"}]
_RESTARTS: dict[str, Any] = {
    "action": "Ignore",
    "onExitCodes": {"operator": "In", "values": [RESTART_EXIT_CODE]},
}


class Rendering:
    """Renders a job as an Indexed Job. The subclasses, for other kinds of main objects, override parts of it."""

    kind: ClassVar[Kind] = JOB
    options: ClassVar[tuple[str, ...]] = ()
    """The options that only this rendering has."""

    def host_names(self, job: TrainingJob) -> HostNames:
        """Raises InvalidJob."""
        count = job.host_count + job.spare_hosts
        name = name_of(job, f"-{count - 1}")
        return HostNames(tuple(f"{name}-{index}" for index in range(count)), name)

    def settings(self, job: TrainingJob, options: KubernetesOptions) -> Mapping[str, Any]:
        """The runtime's settings for this rendering. A job with spare hosts restarts in its pods: new ones are slow."""
        return {"spare_hosts": job.spare_hosts, "restart_program": START} if job.spare_hosts else {}

    def helpers(self, parts: Parts) -> list[dict[str, Any]]:
        """The objects that this kind of main object needs, and that no controller creates for it."""
        return [service(parts), *gang_of(parts).objects]

    def spec(self, parts: Parts) -> dict[str, Any]:
        """The main object's ``spec``. Raises InvalidJob."""
        retries = parts.job.max_retry_attempts
        counted = {"operator": "In", "values": [FINAL_CODE]}
        if not retries:
            counted = {"operator": "NotIn", "values": [RESTART_EXIT_CODE]}
        # a pod that was lost with its node, or ended because another host did, is replaced without counting
        ignored: list[dict[str, Any]] = [{"action": "Ignore", "onPodConditions": _DISRUPTED}, _RESTARTS]
        # the first host leads; a spare host may still wait for a node when all others have ended
        leader = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
        return {
            **_indexed(parts, retries, [*ignored, {"action": "FailJob", "onExitCodes": counted}]),
            **(leader if parts.job.spare_hosts else {}),
            "ttlSecondsAfterFinished": parts.options.ttl,
            "template": pod_template(parts),
        }

    def main_object(self, parts: Parts) -> dict[str, Any]:
        """The object that owns all others of the job. Raises InvalidJob."""
        options, gang, spec = parts.options, gang_of(parts), self.spec(parts)
        if gang.is_suspended:
            spec.get("runPolicy", spec)["suspend"] = True
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": {
                "name": parts.name,
                "namespace": parts.namespace,
                "labels": {**options.labels, **gang.labels, **job_labels(parts.name)},
                "annotations": {**options.annotations, SETTINGS: json.dumps(parts.summary)},
            },
            "spec": spec,
        }


class JobSetRendering(Rendering):
    """Renders a job as a JobSet with one Indexed Job. The controller restarts it as a whole, and creates the Service.

    ``maxRestarts`` counts failures of the script only:

    - A pod that was evicted, preempted, or lost with its node has the condition ``DisruptionTarget``. It fails the Job
      with the reason ``PodFailurePolicy``, and the JobSet restarts without counting.
    - A host that ends, but not because of the script, exits with `RESTART_EXIT_CODE`. The Job replaces its pod.
    - Any other failure exceeds the Job's ``backoffLimit``, which counts as a restart.

    The two reasons distinguish these in every version of JobSet; versions before 0.10 ignore patterns of messages.
    """

    kind = JOB_SET

    def host_names(self, job: TrainingJob) -> HostNames:
        # the Job's controller adds random characters
        name = name_of(job, f"-{NODE}-0-{job.host_count - 1}-xxxxx")
        return HostNames(tuple(f"{name}-{NODE}-0-{index}" for index in range(job.host_count)), name)

    def helpers(self, parts: Parts) -> list[dict[str, Any]]:
        return list(gang_of(parts).objects)

    def spec(self, parts: Parts) -> dict[str, Any]:
        rules: list[dict[str, Any]] = [{"action": "FailJob", "onPodConditions": _DISRUPTED}, _RESTARTS]
        job = {**_indexed(parts, 0, rules), "template": pod_template(parts)}
        node = {"metadata": {"labels": job_labels(parts.name)}, "spec": job}
        disrupted = {
            "name": "disrupted",
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
        }
        stopped = {"name": "stopped", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
        service = parts.hosts.service
        spec: dict[str, Any] = {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": service},
            "failurePolicy": {"maxRestarts": parts.job.max_retry_attempts, "rules": [disrupted, stopped]},
            "ttlSecondsAfterFinished": parts.options.ttl,
            "replicatedJobs": [{"name": NODE, "replicas": 1, "template": node}],
        }
        if len(f"{parts.hosts.names[0]}.{service}") <= LONGEST:  # because the address becomes a label, too
            spec["coordinator"] = {"replicatedJob": NODE, "jobIndex": 0, "podIndex": 0}
        return spec


def _indexed(parts: Parts, retries: int, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of an Indexed Job. ``rules`` determine which pods count as failures; the first match applies."""
    hosts = len(parts.hosts.names)
    return {
        "completionMode": "Indexed",
        "completions": hosts,
        "parallelism": hosts,
        "backoffLimit": retries,
        # never reached before backoffLimit, but without it Kubernetes doubles its pause for each pod that ended: up to
        # 10 minutes for 7 hosts
        "backoffLimitPerIndex": retries,
        "podFailurePolicy": {"rules": rules},
    }


MANAGER = "cloudtrain/submit"
"""The key of cloudtrain's patches. Kueue has its own."""
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TORCHRUN_VARIABLES = tuple(
    f"PET_{name}" for name in ("NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
)
"""The variables that Trainer sets, as defaults of torchrun's options. A job must not set them."""

# The fields that a patch of the training runtime may have; fields that the training runtime, JobSet or the trainer set,
# and that a job can do without; and the options for fields that a TrainJob cannot have.
_POD_FIELDS = {"serviceAccountName", "imagePullSecrets", "securityContext", "terminationGracePeriodSeconds"}
_POD_FIELDS |= {"volumes", "nodeSelector", "affinity", "tolerations", "schedulingGates"}
_POD_FIELDS_OF_RUNTIME = {"restartPolicy", "subdomain", "hostname", "dnsConfig", "containers"}
_POD_FIELDS_OF_RUNTIME |= {"automountServiceAccountToken", "enableServiceLinks"}
_CONTAINER_FIELDS = {"volumeMounts", "securityContext"}
_CONTAINER_FIELDS_OF_OTHERS = {"name", "image", "command", "args", "env", "resources", "ports", "workingDir"}
_CONTAINER_FIELDS_OF_OTHERS |= {"terminationMessagePath", "terminationMessagePolicy"}
_OPTIONS = {
    "priorityClassName": "priority_class",
    "topologySpreadConstraints": "topology_spread",
    "schedulerName": "scheduler",
    "hostNetwork": "host_network",
    "imagePullPolicy": "image_pull_policy",
    "envFrom": "env_from",
}


class TrainJobRendering(JobSetRendering):
    """Renders a job as fields of Trainer's API, and patches of its training runtime. Trainer creates the JobSet."""

    kind = TRAIN_JOB
    options = ("training_runtime", "training_runtime_kind")

    def host_names(self, job: TrainingJob) -> HostNames:
        """The host names with the Service, because a TrainJob cannot have the search list for plain host names."""
        plain = super().host_names(job)
        names = tuple(f"{name}.{plain.service}" for name in plain.names)
        return HostNames(names, plain.service, leader=names[0])

    def settings(self, job: TrainingJob, options: KubernetesOptions) -> Mapping[str, Any]:
        """The kubelet restarts containers of Kubeflow's training runtimes in place. The job uses its own torchrun."""
        return {"retries_in_place": job.max_retry_attempts, "dropped_variables": ",".join(TORCHRUN_VARIABLES)}

    def helpers(self, parts: Parts) -> list[dict[str, Any]]:
        """No objects: the training runtime defines the pod group."""
        return []

    def spec(self, parts: Parts) -> dict[str, Any]:
        options = parts.options
        refuse_if(
            options.gang in ("volcano", "coscheduling"),
            f"platform_options.gang: {options.gang} is up to the training runtime of a TrainJob",
            "Name a platform_options.training_runtime with a podGroupPolicy, or choose rendering: jobset.",
        )
        for name in (*parts.job.environment, *options.secret_env):
            refuse_if(
                name in TORCHRUN_VARIABLES,
                f"environment.{name}: Trainer sets this variable itself, and refuses TrainJobs that do",
                "Remove it: the ranks do not see Trainer's values. Or choose rendering: jobset.",
            )
        template = pod_template(parts)
        metadata, pod = template.get("metadata", {}), template["spec"]
        container = pod["containers"][0]
        _check(pod, _POD_FIELDS | _POD_FIELDS_OF_RUNTIME, "pods")
        _check(container, _CONTAINER_FIELDS | _CONTAINER_FIELDS_OF_OTHERS, "containers")
        if len(pod["containers"]) > 1:
            raise _no_place("more than one container in a pod", "pod_patch")
        if pod.get("automountServiceAccountToken") is False:
            # A patch has no such field. But the admission of service accounts does not mount a token over a volume at
            # the same path.
            mount = {"name": "no-token", "mountPath": TOKEN_PATH, "readOnly": True}
            pod = {**pod, "volumes": [*pod["volumes"], {"name": "no-token", "emptyDir": {}}]}
            container = {**container, "volumeMounts": [*container["volumeMounts"], mount]}
        patch = {
            **_only(pod, _POD_FIELDS),
            "containers": [{"name": NODE, **_only(container, _CONTAINER_FIELDS)}],
        }
        trainer = {
            **_only(container, {"image", "command", "args", "env"}),
            "numNodes": len(parts.hosts.names),
        }
        if "resources" in container:
            trainer["resourcesPerNode"] = container["resources"]
        pods = {"metadata": _only(metadata, {"labels", "annotations"}), "spec": patch}
        job = {"metadata": {"labels": job_labels(parts.name)}, "spec": {"template": pods}}
        replicated = {"replicatedJobs": [{"name": NODE, "template": job}]}
        return {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": options.training_runtime_kind,
                "name": options.training_runtime,
            },
            "trainer": trainer,
            "runtimePatches": [
                {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": replicated}}}
            ],
        }


def _only(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in names}


def _check(fields: dict[str, Any], known: set[str], where: str) -> None:
    for name in fields:
        if name not in known:
            raise _no_place(f"the field {name} of {where}", _OPTIONS.get(name, "pod_patch"))


def _no_place(what: str, option: str) -> InvalidJob:
    return InvalidJob(
        f"platform_options.{option}: a TrainJob has no place for {what}",
        hint=f"Remove {option}, choose another platform_options.rendering, or name a platform_options.training_runtime "
        "that sets it.",
    )


SSH_FOLDER = "/cloudtrain/ssh"
"""The folder where the MPI operator mounts its keys. Its default, /root/.ssh, would hide a folder of the image."""
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
"""The variables that the operator sets for the image's mpirun."""


class MPIJobRendering(Rendering):
    """Renders a job as an MPIJob: a launcher, which is the leader, and workers with the ranks.

    The workers run cloudtrain's runtime instead of sshd, and the launcher sends commands to them through it. The
    operator's preparations for ``mpirun`` over ssh remain unused. The launcher's Job counts each failed pod, whatever
    its exit code. Therefore the launcher restarts within its pod after the loss of a worker. A worker's container
    restarts in place, and joins the next leader.
    """

    kind = MPI_JOB
    options = ("mpi_implementation", "launcher_as_worker")

    def host_names(self, job: TrainingJob) -> HostNames:
        """The launcher, and a worker for each host of the job; with ``launcher_as_worker``, one worker fewer.

        Workers find the leader through a Service of the job: the operator's Service has the launcher's address only in
        newer versions, and only once the launcher is ready.
        """
        workers = job.host_count - KubernetesOptions.of(job).launcher_as_worker
        name = name_of(job, max("-launcher-xxxxx", f"-worker-{max(0, workers - 1)}", key=len))
        names = (f"{name}-launcher", *(f"{name}-worker-{index}" for index in range(workers)))
        return HostNames(names, name, leader=f"{name}-leader")

    def settings(self, job: TrainingJob, options: KubernetesOptions) -> Mapping[str, Any]:
        """The launcher leads, and prints the workers' output. The runtime's mpirun needs neither ssh nor a hostfile."""
        return {
            "no_ranks": not options.launcher_as_worker,
            "forward_output": True,
            "dropped_variables": ",".join(("K_MPI_JOB_ROLE", *_MPI_VARIABLES[options.mpi_implementation])),
        }

    def helpers(self, parts: Parts) -> list[dict[str, Any]]:
        """The Service with the launcher's address. The operator creates the other Services, and the pod group."""
        return [service(parts, f"{parts.name}-leader", {ROLE: LAUNCHER})]

    def spec(self, parts: Parts) -> dict[str, Any]:
        options, workers = parts.options, len(parts.hosts.names) - 1
        launcher = pod_template(
            parts,
            role=LAUNCHER,
            has_ranks=options.launcher_as_worker,
            environment={"CLOUDTRAIN_RESTART_PROGRAM": START},
        )
        replicas = {"Launcher": _replicas(1, "Never", launcher)}
        if workers:
            replicas["Worker"] = _replicas(workers, "OnFailure", pod_template(parts))
        policy: dict[str, Any] = {
            "cleanPodPolicy": "Running",
            "ttlSecondsAfterFinished": options.ttl,
            "backoffLimit": parts.job.max_retry_attempts,
        }
        if options.gang in ("volcano", "coscheduling"):  # the operator creates the PodGroup from it
            group = {
                "minAvailable": workers + 1,
                "queue": options.queue,
                "priorityClass": options.priority_class,
            }
            policy["schedulingPolicy"] = {name: value for name, value in group.items() if value}
        kinds = parts.job.distribution.enabled.values() if parts.job.distribution else ()
        ranks = (getattr(kind, "processes_per_host", None) for kind in kinds)
        return {
            "slotsPerWorker": next(filter(None, ranks), options.gpus or 1),
            "runLauncherAsWorker": options.launcher_as_worker,
            "mpiImplementation": options.mpi_implementation,
            "sshAuthMountPath": SSH_FOLDER,
            "runPolicy": policy,
            "mpiReplicaSpecs": replicas,
        }


def _replicas(count: int, restart_policy: str, template: dict[str, Any]) -> dict[str, Any]:
    """Replicas of ``template``, without the fields that the operator sets itself, and warns about."""
    names = set(template["spec"]) - {"restartPolicy", "subdomain", "hostname"}
    template = {**template, "spec": _only(template["spec"], names)}
    return {"replicas": count, "restartPolicy": restart_policy, "template": template}
