"""Jobs as JobSet, TrainJob and MPIJob: valid by their definitions, and what their operators make of them, too."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from custom_resources import resource_errors
from kube_operators import (
    TORCH_DISTRIBUTED,
    jobset_after_failure,
    jobset_jobs,
    jobset_service,
    mpijob_launcher,
    mpijob_objects,
    mpijob_workers,
    trainjob_jobset,
)
from kube_schemas import validate_everywhere

from cloudtrain.contract import Settings
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.kubernetes.render.render import render
from cloudtrain.platforms.kubernetes.render.renderings import TOKEN_PATH
from cloudtrain.spec import TrainingJob

Object = dict[str, Any]
SOURCE = {"uri": "file:///source/sourcedir.tar.gz", "sha256": "0" * 64}
OPTIONS: Object = {
    "discard_outputs": True,
    "gpus": 8,
    "cpu": 4,
    "memory": "64Gi",
    "shm_size": "8Gi",
    "resources": {"vpc.amazonaws.com/efa": 4},
    "node_selector": {"pool": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "volumes": ["data:/data"],
    "secret_env": {"WANDB_API_KEY": "wandb/key"},
    "service_account": "trainer",
    "image_pull_secrets": ["registry"],
    "labels": {"team": "vision"},
    "annotations": {"note": "x"},
}


def job_of(rendering: str, name: str = "job", count: int = 3, **fields: Any) -> TrainingJob:
    options = {**OPTIONS, "rendering": rendering, **fields.pop("options", {})}
    return TrainingJob.from_dict(
        {
            "job_name": name,
            "entry_point": "train.py",
            "image_uri": "python:3.12",
            "instance_count": count,
            "source": SOURCE,
            "platform_options": options,
            **fields,
        }
    )


def render_valid(rendering: str, **fields: Any) -> Object:
    """The main object, which its definition accepts."""
    body = render(job_of(rendering, **fields)).body
    main, *others = body["objects"]
    assert resource_errors(main) == []
    validate_everywhere([item for item in others if "scheduling" not in item["apiVersion"]])
    return dict(main)


def runtime_settings(pod: Object) -> Settings:
    variables = {
        item["name"]: item["value"] for item in pod["spec"]["containers"][0]["env"] if "value" in item
    }
    return Settings.from_environ(variables)


def test_a_jobset() -> None:
    from kubeflow_trainer_api import models  # 0.8 s of CPU time, in every worker

    main = render_valid("jobset", max_retry_attempts=2, max_run=3600)
    assert models.JobsetV1alpha2JobSet.from_dict(main)
    validate_everywhere([jobset_service(main), *jobset_jobs(main)])
    (child,) = jobset_jobs(main)
    assert child["metadata"]["name"] == "job-node-0"
    template = child["spec"]["template"]
    assert template["metadata"]["labels"]["jobset.sigs.k8s.io/coordinator"] == "job-node-0-0.job"
    assert runtime_settings(template).rendezvous == "job-node-0-0.job:7778"
    assert main["spec"]["ttlSecondsAfterFinished"] == 604800
    assert "ttlSecondsAfterFinished" not in child["spec"]
    assert runtime_settings(template).max_run == 3600
    kinds = [item["kind"] for item in render(job_of("jobset")).body["objects"]]
    assert "Service" not in kinds, "JobSet makes it"


@pytest.mark.parametrize(
    ("reason", "counted", "outcome"),
    [
        ("PodFailurePolicy", 9, ("restart", False)),
        ("BackoffLimitExceeded", 0, ("restart", True)),
        ("BackoffLimitExceeded", 1, ("restart", True)),
        ("BackoffLimitExceeded", 2, ("fail", False)),
        ("DeadlineExceeded", 0, ("fail", False)),
    ],
)
def test_only_failures_of_the_script_count_as_restarts(
    reason: str, counted: int, outcome: tuple[str, bool]
) -> None:
    main = render_valid("jobset", max_retry_attempts=2)
    assert jobset_after_failure(main, reason, counted) == outcome
    disrupted, restart = main["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
    assert disrupted["action"] == "FailJob", "its reason is PodFailurePolicy"
    assert restart == {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}}


def test_a_long_name_has_no_coordinator() -> None:
    """Its address would be a label that is too long."""
    assert "coordinator" in render_valid("jobset", name="j" * 26)["spec"]
    main = render_valid("jobset", name="j" * 48)
    assert "coordinator" not in main["spec"]
    pod = f"{jobset_jobs(main)[0]['metadata']['name']}-2-xxxxx"
    assert len(pod) <= 63


@pytest.mark.parametrize(
    ("rendering", "most"), [("jobset", 48), ("trainjob", 48), ("mpijob", 48), ("job", 61)]
)
def test_the_longest_name(rendering: str, most: int) -> None:
    options = {} if rendering != "job" else {"rendering": "job"}
    render(job_of(rendering, name="j" * most, options=options))
    with pytest.raises(InvalidJob, match=f"has {most + 1} characters, and Kubernetes allows {most} here"):
        render(job_of(rendering, name="j" * (most + 1), options=options))


def test_a_trainjob() -> None:
    from kubeflow_trainer_api import models  # 0.8 s of CPU time, in every worker

    main = render_valid("trainjob", max_run=3600)
    assert models.TrainerV1alpha1TrainJob.from_dict(main)
    assert main["spec"]["runtimeRef"]["name"] == "torch-distributed"
    (patch,) = main["spec"]["runtimePatches"]
    assert patch["manager"] == "cloudtrain/submit", "a path with a domain, as Trainer's webhook wants"
    jobset = trainjob_jobset(main, TORCH_DISTRIBUTED)
    assert resource_errors(jobset) == []
    validate_everywhere([*jobset_jobs(jobset)])
    (child,) = jobset_jobs(jobset)
    assert child["spec"]["completions"] == 3
    template = child["spec"]["template"]
    settings = runtime_settings(template)
    assert settings.rendezvous == "job-node-0-0.job:7778", "found without a search list"
    assert settings.job_name == "job" and settings.restart_exit_code == 75
    expected = render_valid("jobset")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    container, wanted = template["spec"]["containers"][0], expected["spec"]["containers"][0]
    for field in ("image", "command", "securityContext", "resources"):
        assert container[field] == wanted[field]
    no_token = {"name": "no-token", "mountPath": TOKEN_PATH, "readOnly": True}
    assert container["volumeMounts"] == [*wanted["volumeMounts"], no_token]
    assert template["spec"]["volumes"] == [*expected["spec"]["volumes"], {"name": "no-token", "emptyDir": {}}]
    for field in ("tolerations", "nodeSelector", "affinity", "serviceAccountName"):
        assert template["spec"][field] == expected["spec"][field]
    assert {"team": "vision", "cloudtrain/job": "job"}.items() <= template["metadata"]["labels"].items()


def test_the_hosts_of_a_trainjob_resolve_without_a_search_list() -> None:
    objects = render(job_of("trainjob")).body["objects"]
    (documents,) = (item["data"] for item in objects if item["kind"] == "ConfigMap" and "data" in item)
    assert '"job-node-0-0.job"' in documents["resourceconfig.json"]


def test_a_token_that_is_requested() -> None:
    patch = {"pod_patch": {"spec": {"automountServiceAccountToken": True}}}
    assert TOKEN_PATH not in str(render_valid("trainjob", options=patch))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("priority_class", "high"),
        ("topology_spread", [{"topologyKey": "zone"}]),
        ("scheduler", "own"),
        ("host_network", True),
        ("image_pull_policy", "Always"),
        ("env_from", ["secret:a"]),
        ("gang", "volcano"),
        ("pod_patch", {"spec": {"runtimeClassName": "nvidia"}}),
    ],
)
def test_options_without_a_place_in_a_trainjob(option: str, value: object) -> None:
    with pytest.raises(InvalidJob, match=rf"platform_options\.{option}: ") as caught:
        render(job_of("trainjob", options={option: value}))
    assert "training_runtime" in caught.value.hint


@pytest.mark.parametrize("implementation", ["OpenMPI", "MPICH", "Intel"])
def test_an_mpijob(implementation: str) -> None:
    options = {"mpi_implementation": implementation}
    distribution = {"mpi": {"enabled": True, "processes_per_host": 4}}
    main = render_valid("mpijob", options=options, distribution=distribution, max_retry_attempts=1)
    spec = main["spec"]
    assert spec["slotsPerWorker"] == 4 and spec["mpiImplementation"] == implementation
    policy = {"cleanPodPolicy": "Running", "backoffLimit": 1, "ttlSecondsAfterFinished": 604800}
    assert policy.items() <= spec["runPolicy"].items()
    launcher, workers = mpijob_launcher(copy.deepcopy(main)), mpijob_workers(copy.deepcopy(main))
    validate_everywhere([*mpijob_objects(main, "ml"), launcher, *workers])
    assert [pod["metadata"]["name"] for pod in workers] == [f"job-worker-{index}" for index in range(3)]
    leader = launcher["spec"]["template"]
    assert "nvidia.com/gpu" not in str(leader["spec"]["containers"][0]["resources"])
    assert "nvidia.com/gpu" in str(workers[0]["spec"]["containers"][0]["resources"])
    settings = runtime_settings(leader)
    assert settings.no_ranks and settings.forward_output and settings.rendezvous == "job-leader:7778"
    mounts = [mount["mountPath"] for mount in workers[0]["spec"]["containers"][0]["volumeMounts"]]
    assert "/cloudtrain/ssh" in mounts and len(set(mounts)) == len(mounts), "nothing of the image is hidden"
    (service,) = [
        item
        for item in render(job_of("mpijob", options=options)).body["objects"]
        if item["kind"] == "Service"
    ]
    labels = leader["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert not service["spec"]["selector"].items() <= workers[0]["metadata"]["labels"].items()


def test_a_launcher_without_ranks_mounts_no_huge_pages() -> None:
    """It asks for none, and no kubelet mounts them in such a pod."""
    options = {"memory": "64Gi", "resources": {"hugepages-2Mi": "5120Mi", "vpc.amazonaws.com/efa": 4}}
    for more, expected in (({}, 0), ({"launcher_as_worker": True}, 1)):
        replicas = render_valid("mpijob", options={**options, **more})["spec"]["mpiReplicaSpecs"]
        for role, count in (("Launcher", expected), ("Worker", 1)):
            spec = replicas[role]["template"]["spec"]
            medium = [one["emptyDir"].get("medium", "") for one in spec["volumes"] if "emptyDir" in one]
            mounts = [one["mountPath"] for one in spec["containers"][0]["volumeMounts"]]
            assert medium.count("HugePages-2Mi") == mounts.count("/hugepages-2mi") == count


def test_the_launcher_may_be_a_worker() -> None:
    main = render_valid("mpijob", options={"launcher_as_worker": True})
    assert main["spec"]["runLauncherAsWorker"] and main["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2
    assert not runtime_settings(mpijob_launcher(main)["spec"]["template"]).no_ranks
    alone = render_valid("mpijob", options={"launcher_as_worker": True}, count=1)
    assert "Worker" not in alone["spec"]["mpiReplicaSpecs"]


def test_volcano_gets_its_group_from_the_mpi_operator() -> None:
    options = {"gang": "volcano", "queue": "research", "priority_class": "high"}
    main = render_valid("mpijob", options=options)
    policy = {"minAvailable": 4, "queue": "research", "priorityClass": "high"}
    assert main["spec"]["runPolicy"]["schedulingPolicy"] == policy
    kinds = [item["kind"] for item in render(job_of("mpijob", options=options)).body["objects"]]
    assert "PodGroup" not in kinds


@pytest.mark.parametrize("rendering", ["job", "jobset", "trainjob", "mpijob"])
def test_kueue_starts_every_kind(rendering: str) -> None:
    main = render(job_of(rendering, options={"queue": "research"})).body["objects"][0]
    assert main["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    spec = main["spec"]["runPolicy"] if rendering == "mpijob" else main["spec"]
    assert spec["suspend"] is True


@pytest.mark.parametrize(
    ("rendering", "options"),
    [
        ("job", {"mpi_implementation": "MPICH"}),
        ("jobset", {"launcher_as_worker": True}),
        ("mpijob", {"training_runtime": "deepspeed-distributed"}),
    ],
)
def test_options_of_another_rendering(rendering: str, options: Object) -> None:
    with pytest.raises(InvalidJob, match=f"has no effect on a {rendering}"):
        render(job_of(rendering, options=options))
