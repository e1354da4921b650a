"""The objects that the operators of JobSet, Kubeflow Trainer and MPIJob make of a custom resource, by their sources.

JobSet 0.12 (``jobset_controller.go``, ``jobset_webhook.go``, ``failure_policy.go``), Trainer 2.3 (the plugins ``torch``
and ``jobset``), mpi-operator 0.8.2 (``mpi_job_controller.go``). Only what matters to a pod: its names, its Service,
what is added to its template, and what follows from its end.
"""

from __future__ import annotations

import copy
from typing import Any

Object = dict[str, Any]

TORCH_DISTRIBUTED: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch-distributed"},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {
                                "template": {
                                    "spec": {"containers": [{"name": "node", "image": "pytorch/pytorch"}]}
                                }
                            },
                        },
                    }
                ]
            }
        },
    },
}
"""The runtime that Trainer installs."""


def owner(parent: Object) -> list[Object]:
    metadata = parent["metadata"]
    return [
        {
            "apiVersion": parent["apiVersion"],
            "kind": parent["kind"],
            "name": metadata["name"],
            "uid": metadata.get("uid", "?"),
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


# -- JobSet


def jobset_service(jobset: Object) -> Object:
    network, name = jobset["spec"].get("network", {}), jobset["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": network.get("subdomain") or name, "ownerReferences": owner(jobset)},
        "spec": {
            "clusterIP": "None",
            "selector": {"jobset.sigs.k8s.io/jobset-name": name},
            "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
        },
    }


def jobset_jobs(jobset: Object, restarts: int = 0) -> list[Object]:
    """The child Jobs of the attempt ``restarts``."""
    name, spec = jobset["metadata"]["name"], jobset["spec"]
    subdomain = spec.get("network", {}).get("subdomain") or name
    jobs = []
    for replicated in spec["replicatedJobs"]:
        for index in range(replicated.get("replicas", 1)):
            job_spec = copy.deepcopy(replicated["template"]["spec"])
            job_spec.setdefault("completionMode", "Indexed")
            template = job_spec["template"]
            template["spec"].setdefault("restartPolicy", "OnFailure")
            template["spec"]["subdomain"] = subdomain
            labels = {
                "jobset.sigs.k8s.io/jobset-name": name,
                "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"],
                "jobset.sigs.k8s.io/job-index": str(index),
                "jobset.sigs.k8s.io/restart-attempt": str(restarts),
            }
            coordinator = spec.get("coordinator")
            if coordinator:
                host = "-".join(
                    str(part)
                    for part in (
                        name,
                        coordinator["replicatedJob"],
                        coordinator["jobIndex"],
                        coordinator["podIndex"],
                    )
                )
                labels["jobset.sigs.k8s.io/coordinator"] = f"{host}.{subdomain}"
            template.setdefault("metadata", {})
            template["metadata"]["labels"] = {**template["metadata"].get("labels", {}), **labels}
            own = replicated["template"].get("metadata", {}).get("labels", {})
            jobs.append(
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {
                        "name": f"{name}-{replicated['name']}-{index}",
                        "labels": {**own, **labels},
                        "ownerReferences": owner(jobset),
                    },
                    "spec": job_spec,
                }
            )
    return jobs


def jobset_after_failure(jobset: Object, reason: str, counted: int) -> tuple[str, bool]:
    """The action of a JobSet after its Job has failed for ``reason``: ``restart`` or ``fail``, and whether that counts.

    Args:
        counted: the restarts that have counted so far.
    """
    policy = jobset["spec"].get("failurePolicy")
    if policy is None:
        return "fail", False
    action = next(
        (
            rule["action"]
            for rule in policy.get("rules", [])
            if reason in rule.get("onJobFailureReasons", [reason])
        ),
        "RestartJobSet",
    )
    if action == "RestartJobSetAndIgnoreMaxRestarts":
        return "restart", False
    if action == "RestartJobSet" and counted < policy.get("maxRestarts", 0):
        return "restart", True
    return "fail", False


# -- TrainJob


def trainjob_jobset(train_job: Object, runtime: Object, status_url: str = "") -> Object:
    """The JobSet of a TrainJob, with what the plugins ``torch`` and ``jobset`` put into the container ``node``."""
    name, spec = train_job["metadata"]["name"], train_job["spec"]
    trainer = spec["trainer"]
    nodes = trainer.get("numNodes", 1)
    template = copy.deepcopy(runtime["spec"]["template"]["spec"])
    for patch in spec.get("runtimePatches", []):
        template = merge(template, patch.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {}))
    for replicated in template["replicatedJobs"]:
        job = replicated["template"]
        if job["metadata"]["labels"].get("trainer.kubeflow.org/trainjob-ancestor-step") != "trainer":
            continue
        job["spec"] |= {"parallelism": nodes, "completions": nodes}
        container = next(
            item for item in job["spec"]["template"]["spec"]["containers"] if item["name"] == "node"
        )
        for field in ("image", "command", "args"):
            if field in trainer:
                container[field] = trainer[field]
        if "resourcesPerNode" in trainer:
            container["resources"] = trainer["resourcesPerNode"]
        index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        environment = [
            *trainer.get("env", []),
            {"name": "PET_NNODES", "value": str(nodes)},
            {"name": "PET_NPROC_PER_NODE", "value": "auto"},
            {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}},
            {"name": "PET_MASTER_ADDR", "value": f"{name}-node-0-0.{name}"},
            {"name": "PET_MASTER_PORT", "value": "29500"},
        ]
        container["env"] = environment
        container["ports"] = [{"containerPort": 29500}]
    labels = train_job["metadata"].get("labels", {})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner(train_job)},
        "spec": {**template, "suspend": spec.get("suspend", False)},
    }


def merge(base: Any, patch: Any) -> Any:
    """A strategic merge: lists of objects with names are merged by name, other lists replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{key: merge(base.get(key), value) for key, value in patch.items()}}
    if isinstance(base, list) and all(isinstance(item, dict) and "name" in item for item in [*base, *patch]):
        merged = {item["name"]: item for item in base}
        for item in patch:
            merged[item["name"]] = merge(merged.get(item["name"]), item)
        return list(merged.values())
    return patch


# -- MPIJob

OPEN_MPI = {
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    "OMPI_MCA_orte_set_default_slots": "{slots}",
}
MPICH = {"HYDRA_HOST_FILE": "/etc/mpi/hostfile", "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"}
INTEL = {
    "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
    "I_MPI_PERHOST": "{slots}",
}
VARIABLES = {"OpenMPI": OPEN_MPI, "MPICH": MPICH, "Intel": INTEL}


def mpijob_objects(mpi_job: Object, namespace: str) -> list[Object]:
    """The Service, the ConfigMap with the hosts, and the Secret with the keys."""
    name, spec = mpi_job["metadata"]["name"], mpi_job["spec"]
    slots = spec["slotsPerWorker"]
    lines = [f"{host}.{name}.{namespace}.svc slots={slots}\n" for host in _mpi_hosts(mpi_job)]
    hosts = "".join(lines)
    metadata = {"labels": {"app": name}, "ownerReferences": owner(mpi_job)}
    selector = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": name,
    }
    keys = dict.fromkeys(("ssh-privatekey", "ssh-publickey"), "a key")
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, **metadata},
            "spec": {
                "clusterIP": "None",
                "selector": selector,
                "publishNotReadyAddresses": spec.get("runLauncherAsWorker", False),
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-config", **metadata},
            "data": {"hostfile": hosts, "discover_hosts.sh": "#!/bin/sh\n"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{name}-ssh", **metadata},
            "type": "kubernetes.io/ssh-auth",
            "stringData": keys,
        },
    ]


def _mpi_hosts(mpi_job: Object) -> list[str]:
    name, spec = mpi_job["metadata"]["name"], mpi_job["spec"]
    workers = spec["mpiReplicaSpecs"].get("Worker", {}).get("replicas", 0)
    launcher = [f"{name}-launcher"] if spec.get("runLauncherAsWorker") else []
    return launcher + [f"{name}-worker-{index}" for index in range(workers)]


def mpijob_launcher(mpi_job: Object) -> Object:
    """The launcher's Job."""
    name, spec = mpi_job["metadata"]["name"], mpi_job["spec"]
    template = _mpi_template(mpi_job, "Launcher", f"{name}-launcher")
    container = template["spec"]["containers"][0]
    slots = spec["slotsPerWorker"]
    variables = {
        name: value.format(slots=slots)
        for name, value in VARIABLES[spec.get("mpiImplementation", "OpenMPI")].items()
    }
    if not spec.get("runLauncherAsWorker"):
        variables |= {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
    container["env"] += [{"name": name, "value": value} for name, value in variables.items()]
    items = [{"key": "hostfile", "path": "hostfile", "mode": 0o444}]
    config = {"name": f"{name}-config", "items": items}
    template["spec"]["volumes"].append({"name": "mpi-job-config", "configMap": config})
    container["volumeMounts"].append({"name": "mpi-job-config", "mountPath": "/etc/mpi"})
    policy = spec["runPolicy"]
    fields = {
        name: policy[name]
        for name in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
        if name in policy
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{name}-launcher",
            "labels": {"app": name},
            "ownerReferences": owner(mpi_job),
        },
        "spec": {**fields, "podReplacementPolicy": "Failed", "template": template},
    }


def mpijob_workers(mpi_job: Object) -> list[Object]:
    """The workers' pods, which no Job owns."""
    name = mpi_job["metadata"]["name"]
    workers = mpi_job["spec"]["mpiReplicaSpecs"].get("Worker", {}).get("replicas", 0)
    pods = []
    for index in range(workers):
        host = f"{name}-worker-{index}"
        template = _mpi_template(mpi_job, "Worker", host)
        template["metadata"]["labels"]["training.kubeflow.org/replica-index"] = str(index)
        metadata = {**template["metadata"], "name": host, "ownerReferences": owner(mpi_job)}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return pods


def _mpi_template(mpi_job: Object, role: str, host: str) -> Object:
    name, replica = mpi_job["metadata"]["name"], mpi_job["spec"]["mpiReplicaSpecs"][role]
    template: Object = copy.deepcopy(replica["template"])
    template.setdefault("metadata", {}).setdefault("labels", {}).update(
        {
            "training.kubeflow.org/operator-name": "mpi-operator",
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/job-role": role.lower(),
        }
    )
    pod = template["spec"]
    pod |= {"hostname": host, "subdomain": name, "restartPolicy": replica["restartPolicy"]}
    container = pod["containers"][0]
    container.setdefault("env", []).append({"name": "K_MPI_JOB_ROLE", "value": role.lower()})
    pod.setdefault("volumes", []).append({"name": "ssh-auth", "secret": {"secretName": f"{name}-ssh"}})
    mount = {"name": "ssh-auth", "mountPath": mpi_job["spec"].get("sshAuthMountPath", "/root/.ssh")}
    container.setdefault("volumeMounts", []).append(mount)
    return template
