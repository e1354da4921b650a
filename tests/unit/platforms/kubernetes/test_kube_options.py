"""Each option of a job changes its objects as the guide says; a job that cannot run gets one clear error."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube_renderings import (
    container_of,
    environment_of,
    kube_job,
    main_of,
    object_of,
    pod_of,
    rendered,
    template_of,
    with_options,
)
from kube_schemas import schema_errors, validate_everywhere

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.kubernetes import KubernetesPlatform
from cloudtrain.platforms.kubernetes.render.render import render
from cloudtrain.spec.names import new_job_name


def test_resources_are_requests_and_limits() -> None:
    request = with_options(gpus=2, cpu=0.5, memory="8Gi", disk="100Gi", resources={"rdma/hca": 1})
    assert container_of(request)["resources"] == {
        "requests": {
            "cpu": "0.5",
            "memory": "8Gi",
            "ephemeral-storage": "100Gi",
            "nvidia.com/gpu": "2",
            "rdma/hca": "1",
        },
        "limits": {
            "cpu": "0.5",
            "memory": "8Gi",
            "ephemeral-storage": "100Gi",
            "nvidia.com/gpu": "2",
            "rdma/hca": "1",
        },
    }
    assert pod_of(request)["volumes"][0] == {"name": "work", "emptyDir": {"sizeLimit": "100Gi"}}
    assert "resources" not in container_of(rendered())
    other = container_of(with_options(gpus=1, gpu_resource="amd.com/gpu"))["resources"]
    assert other["limits"] == {"amd.com/gpu": "1"}


def test_a_pod_passes_the_restricted_standard_by_default() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/, the policy `restricted`."""
    spec, container = pod_of(rendered()), container_of(rendered())
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    allowed = {"configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
    assert all(set(volume) - {"name"} <= allowed for volume in spec["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"run_as_user": 0}, {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0, "fsGroup": 0}),
        ({"run_as_user": "image"}, {"runAsNonRoot": True}),
        (
            {"run_as_user": 7, "run_as_group": 8, "fs_group": 9},
            {"runAsNonRoot": True, "runAsUser": 7, "runAsGroup": 8, "fsGroup": 9},
        ),
    ],
)
def test_users(options: dict[str, Any], expected: dict[str, Any]) -> None:
    found = pod_of(with_options(**options))["securityContext"]
    assert {key: value for key, value in found.items() if "un" in key or key == "fsGroup"} == expected


def test_only_root_installs_into_the_python_of_the_image() -> None:
    name = "CLOUDTRAIN_REQUIREMENTS_CACHE"
    assert environment_of(rendered())[name].startswith("/tmp/")
    assert name in environment_of(with_options(run_as_user="image"))
    assert name not in environment_of(with_options(run_as_user=0))


def test_a_pod_with_host_networking_has_its_own_name() -> None:
    """Its host name is that of the node, and only pods of Indexed Jobs have an index."""
    name = {"fieldRef": {"fieldPath": "metadata.name"}}
    assert environment_of(with_options(host_network=True))["CLOUDTRAIN_POD"] == name
    assert "CLOUDTRAIN_POD" not in environment_of(rendered())


def test_leaders_in_the_network_of_one_node_listen_on_different_ports() -> None:
    def port(name: str, **options: Any) -> int:
        address = environment_of(rendered(job_name=name, platform_options=options))["CLOUDTRAIN_RENDEZVOUS"]
        return int(address.rpartition(":")[2])

    assert port("a-job") == port("another") == 7778
    assert port("a-job", host_network=True) != port("another", host_network=True)
    assert 20_000 <= port("a-job", host_network=True) < 30_000


def test_failures_that_are_not_those_of_the_script_do_not_count() -> None:
    def actions(retries: int) -> list[str]:
        spec = main_of(rendered(max_retry_attempts=retries))["spec"]
        assert spec["backoffLimit"] == retries
        assert spec["backoffLimitPerIndex"] == retries, "the pause before a restart grows with each pod, else"
        return [rule["action"] for rule in spec["podFailurePolicy"]["rules"]]

    assert actions(0) == ["Ignore", "Ignore", "FailJob"]
    assert actions(3) == ["Ignore", "Ignore", "FailJob"], "a time limit that is reached is not tried again"
    assert environment_of(rendered())["CLOUDTRAIN_RESTART_EXIT_CODE"] == "75"


def test_a_job_with_spare_hosts() -> None:
    """More pods than places; the job ends with its leader, and its gang is complete without spares."""
    options = {"gang": "volcano", "queue": "research"}
    request = rendered(instance_count=2, spare_hosts=1, platform_options=options)
    main, spec = main_of(request), main_of(request)["spec"]
    assert (spec["completions"], spec["parallelism"]) == (3, 3)
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert [found for version in ("1.33", "1.37") for found in schema_errors(main, version)] == []
    environment = environment_of(request)
    assert environment["CLOUDTRAIN_SPARE_HOSTS"] == "1"
    assert environment["CLOUDTRAIN_RESTART_PROGRAM"].endswith("/start.py"), "hosts restart in place"
    assert object_of(request, "PodGroup")["spec"]["minMember"] == 2
    assert "successPolicy" not in main_of(rendered())["spec"]


@pytest.mark.parametrize("rendering", ["jobset", "trainjob", "mpijob"])
def test_spare_hosts_of_other_renderings(rendering: str) -> None:
    with pytest.raises(InvalidJob, match=r"^spare_hosts: a \w+ restarts all of its pods") as caught:
        rendered(spare_hosts=1, platform_options={"rendering": rendering})
    assert "platform_options.rendering: job" in caught.value.hint


def test_times() -> None:
    request = rendered(max_run=7200, stop_grace=20, platform_options={"ttl": 60})
    spec = main_of(request)["spec"]
    assert "activeDeadlineSeconds" not in spec, "the time in which a job waits for nodes would count"
    assert environment_of(request)["CLOUDTRAIN_MAX_RUN"] == "7200.0"
    assert "CLOUDTRAIN_MAX_RUN" not in environment_of(rendered())
    assert spec["ttlSecondsAfterFinished"] == 60
    assert pod_of(request)["terminationGracePeriodSeconds"] == 320


def test_secrets_are_only_references() -> None:
    request = rendered(environment={"A_TOKEN": "hidden-1", "PLAIN": "1"}, secrets=["HF_TOKEN"])
    assert request.secrets == {"A_TOKEN": "hidden-1"}
    assert "hidden-1" not in request.to_json() and "hidden-1" not in request.preview
    found = environment_of(request)
    assert found["PLAIN"] == "1"
    for name in ("A_TOKEN", "HF_TOKEN"):
        assert found[name] == {"secretKeyRef": {"name": "a-job", "key": name}}
    assert found["CLOUDTRAIN_HIDDEN_VARIABLES"] == "HF_TOKEN"


def test_channels_reach_the_runtime() -> None:
    request = rendered(
        inputs={"train": "s3://bucket/train", "more": "file:///data/more"},
        platform_options={"volumes": ["datasets:/data:ro"]},
    )
    channels = json.loads(environment_of(request)["CLOUDTRAIN_CHANNELS"])
    assert channels == [["train", "s3://bucket/train"], ["more", "file:///data/more"]]
    documents = object_of(request, "ConfigMap")["data"]
    assert set(json.loads(documents["inputdataconfig.json"])) == {"train", "more"}
    assert "uri" not in documents["inputdataconfig.json"]
    assert "/cache" not in documents["hyperparameters.json"]


def test_volumes_of_all_kinds() -> None:
    nfs = {"path": "/shared", "sub_path": "me", "nfs": {"server": "nfs", "path": "/exports"}}
    request = with_options(volumes=["datasets:/data:ro", "out:/out/", nfs])
    by_name = {mount["name"]: mount for mount in container_of(request)["volumeMounts"]}
    assert by_name["volume-0"] == {"name": "volume-0", "mountPath": "/data", "readOnly": True}
    assert by_name["volume-1"] == {"name": "volume-1", "mountPath": "/out"}
    assert by_name["volume-2"] == {"name": "volume-2", "mountPath": "/shared", "subPath": "me"}
    assert pod_of(request)["volumes"][-1]["nfs"]["server"] == "nfs"
    validate_everywhere([main_of(request)])


def test_kueue_admits_the_job() -> None:
    request = with_options(queue="research", topology="rack")
    assert main_of(request)["spec"]["suspend"] is True
    assert main_of(request)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    annotations = template_of(request)["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/podset-preferred-topology"] == "rack"
    assert "suspend" not in main_of(rendered())["spec"]


def test_other_gangs_have_a_pod_group() -> None:
    volcano = rendered(instance_count=3, platform_options={"gang": "volcano", "queue": "research"})
    group = object_of(volcano, "PodGroup")
    assert group["spec"] == {"minMember": 3, "queue": "research"}
    assert pod_of(volcano)["schedulerName"] == "volcano"
    assert template_of(volcano)["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": "a-job"}
    other = rendered(instance_count=3, platform_options={"gang": "coscheduling", "scheduler": "mine"})
    assert object_of(other, "PodGroup")["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert pod_of(other)["schedulerName"] == "mine"
    assert template_of(other)["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "a-job"


def test_a_patch_reaches_everything_in_the_pod() -> None:
    patch = {
        "metadata": {"annotations": {"mine": "1"}},
        "spec": {
            "runtimeClassName": "nvidia",
            "dnsConfig": None,
            "containers": [
                {
                    "name": "train",
                    "env": [
                        {"name": "CLOUDTRAIN_EVENT_LINES", "value": "false"},
                        {"name": "NEW", "value": "1"},
                    ],
                    "securityContext": {"capabilities": {"drop": ["NET_RAW"]}},
                },
                {"name": "sidecar", "image": "sidecar:1"},
            ],
        },
    }
    request = with_options(pod_patch=patch)
    spec = pod_of(request)
    assert spec["runtimeClassName"] == "nvidia" and "dnsConfig" not in spec
    assert template_of(request)["metadata"]["annotations"] == {"mine": "1"}
    assert [item["name"] for item in spec["containers"]] == ["train", "sidecar"]
    found = environment_of(request)
    assert (found["CLOUDTRAIN_EVENT_LINES"], found["NEW"]) == ("false", "1")
    assert found["CLOUDTRAIN_JOB_NAME"] == "a-job"
    security = container_of(request)["securityContext"]
    assert security == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}}
    validate_everywhere(request.body["objects"])


def test_labels_and_annotations_do_not_replace_those_of_cloudtrain() -> None:
    request = with_options(labels={"team": "vision", "cloudtrain/job": "other"}, annotations={"note": "1"})
    for metadata in (main_of(request)["metadata"], template_of(request)["metadata"]):
        assert metadata["labels"]["team"] == "vision"
        assert metadata["labels"]["cloudtrain/job"] == "a-job"
        assert metadata["annotations"]["note"] == "1"


@pytest.mark.parametrize(
    ("base", "expected"),
    [("TrainMNIST_v2", "trainmnist-v2"), ("01_train", "job-01-train"), ("x" * 60, "x" * 24), ("_", "job")],
)
def test_a_generated_name_is_one_for_kubernetes(base: str, expected: str) -> None:
    assert KubernetesPlatform().base_name(base) == expected
    name = new_job_name(expected)
    for rendering in ("job", "jobset", "mpijob"):
        rendered(job_name=name, instance_count=100, platform_options={"rendering": rendering})


def test_outputs_in_storage_need_no_pod(tmp_path: Path) -> None:
    assert KubernetesPlatform().download("a-job", "s3://bucket/model", tmp_path) is None


def test_a_terminal_does_not_get_the_files() -> None:
    request = rendered()
    assert "does not get the files in ConfigMaps" in request.preview
    assert len(request.preview) < 10_000
    assert list(yaml.safe_load_all(request.preview))[-1] == main_of(request)


def test_an_isolated_network() -> None:
    isolated = {"enable_network_isolation": True, "output_path": "file:///out"}
    volumes = {"volumes": ["claim:/out"]}
    spec = object_of(rendered(**isolated, platform_options=volumes), "NetworkPolicy")["spec"]
    pods = {"podSelector": {"matchLabels": {"cloudtrain/job": "a-job"}}}
    ports = [{"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP")]
    assert spec["egress"] == [{"to": [pods]}, {"ports": ports}]
    assert "egress" not in object_of(rendered(), "NetworkPolicy")["spec"]
    with pytest.raises(InvalidJob, match="output_path: pods cannot reach s3://bucket/out with enable_net"):
        rendered(enable_network_isolation=True)
    with pytest.raises(InvalidJob, match=r"inputs\.a: pods cannot reach"):
        rendered(**isolated, inputs={"a": "s3://bucket/a"}, platform_options=volumes)
    with pytest.raises(InvalidJob, match="network_policy is false"):
        rendered(**isolated, platform_options={**volumes, "network_policy": False})
    with pytest.raises(InvalidJob, match="no NetworkPolicy applies to pods in the network of their nodes"):
        rendered(**isolated, platform_options={**volumes, "host_network": True})


def test_a_job_without_outputs_needs_discard_outputs() -> None:
    request = rendered(output_path=None, platform_options={"discard_outputs": True})
    assert "CLOUDTRAIN_OUTPUT_URI" not in environment_of(request)


URLS = ("boto3-url", "runtime-url", "source-url")

BAD: list[tuple[dict[str, Any], str]] = [
    ({"image_uri": None}, "image_uri: the kubernetes platform needs an image"),
    ({"image_uri": "auto"}, "image_uri: auto chooses an image on this machine"),
    ({"output_path": None}, "output_path: the folders of a pod vanish with it"),
    ({"output_path": "file:///out"}, "output_path: /out is on this machine"),
    ({"checkpoint_s3_uri": "file:///out"}, "checkpoint_s3_uri: /out is on this machine"),
    ({"inputs": {"train": "file:///data"}}, "inputs.train: /data is on this machine"),
    ({"job_name": "A-Job"}, "job_name: 'A-Job' is not a name for Kubernetes"),
    ({"job_name": "1-job"}, "job_name: '1-job' is not a name for Kubernetes"),
    ({"job_name": "a" * 62}, "has 62 characters, and Kubernetes allows 61 here"),
    ({"job_name": "a" * 61, "instance_count": 11}, "has 61 characters, and Kubernetes allows 60 here"),
    ({"entry_point": None, "source_dir": None}, "entry_point: the kubernetes platform needs a script"),
    ({"runtime": "toolkit"}, "runtime: SageMaker's toolkit does not run on kubernetes"),
    ({"checkpoint_local_path": "/x"}, "checkpoint_local_path: a job on kubernetes"),
    (
        {
            "instance_groups": [
                {"instance_group_name": "g", "instance_type": "ml.m5.large", "instance_count": 1}
            ]
        },
        "instance_groups: the hosts of a job on kubernetes are all of one type",
    ),
]

BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"gpu": 1}, "platform_options"),
    ({"namespace": "Team"}, "platform_options.namespace"),
    ({"cpu": "many"}, "platform_options.cpu: 'many' is not an amount of Kubernetes"),
    ({"memory": "8 GB"}, "platform_options.memory: '8 GB' is not an amount of Kubernetes"),
    ({"disk": "100GB"}, "platform_options.disk: '100GB' is not an amount of Kubernetes"),
    ({"shm_size": "half"}, "platform_options.shm_size: 'half' is not an amount of Kubernetes"),
    ({"resources": {"rdma/hca": "x"}}, "platform_options.resources.rdma/hca: 'x' is not an amount"),
    ({"resources": {"hugepages-2Mi": "1Gi"}}, "Kubernetes gives huge pages only with cpu or memory"),
    ({"volumes": ["data"]}, "platform_options.volumes[0]: 'data' is not a volume"),
    ({"volumes": ["a:/data", "b:/data"]}, "platform_options.volumes[1]: something else is mounted at /data"),
    ({"volumes": ["a:/opt/ml"]}, "platform_options.volumes[0]: something else is mounted at /opt/ml"),
    ({"volumes": [{"path": "/data"}]}, "platform_options.volumes[0]: expected path and one source"),
    ({"volumes": [{"path": "data", "nfs": {}}]}, "'data' is not an absolute path"),
    ({"secret_env": {"HF_TOKEN": "hf_secret"}}, "platform_options.secret_env.HF_TOKEN: is not a reference"),
    ({"env_from": ["more"]}, "platform_options.env_from[0]: 'more' names neither a Secret nor a ConfigMap"),
    ({"gang": "kueue"}, "platform_options.gang: kueue needs a queue"),
    ({"gang": "coscheduling", "queue": "q"}, "platform_options.queue: has no effect"),
    ({"partition": "gpu"}, "platform_options.partition: needs the platform slurm"),
]


@pytest.mark.parametrize(("fields", "message"), BAD, ids=[message for _, message in BAD])
def test_jobs_that_cannot_run(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=re.escape(message)) as raised:
        rendered(**fields)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("options", "message"), BAD_OPTIONS, ids=[str(options) for options, _ in BAD_OPTIONS]
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=re.escape(message)):
        with_options(**options)


def test_delivery_by_s3_needs_a_place_in_s3() -> None:
    with pytest.raises(InvalidJob, match="code_location: pods cannot download the source from nowhere"):
        rendered(output_path=None, platform_options={"delivery": "s3", "discard_outputs": True})


def test_a_secret_in_place_of_a_reference_is_not_shown() -> None:
    with pytest.raises(InvalidJob) as raised:
        with_options(secret_env={"HF_TOKEN": "hf_secret"})
    assert "hf_secret" not in str(raised.value)


def test_outputs_need_a_volume_that_can_be_written() -> None:
    with pytest.raises(InvalidJob, match="output_path: /data/out is on a volume that is mounted read-only"):
        rendered(output_path="file:///data/out", platform_options={"volumes": ["claim:/data:ro"]})
    assert render(kube_job(output_path="file:///data/out", platform_options={"volumes": ["claim:/data"]}))


def test_what_s3_delivers_is_in_the_secret() -> None:
    request = with_options(delivery="auto")  # because the outputs go to S3
    assert request.body == with_options(delivery="s3").body
    files = request.body["files"]
    assert files["delivery"] == "s3"
    assert files["source"] == "s3://bucket/out/cloudtrain/source/0123/sourcedir.tar.gz"
    assert [item["kind"] for item in request.body["objects"]] == [
        "Job", "Service", "ConfigMap", "NetworkPolicy",
    ]  # fmt: skip
    assert "add --set platform_options.delivery=configmap" in request.shown
    [secret] = [volume["secret"] for volume in pod_of(request)["volumes"] if "secret" in volume]
    assert {item["key"] for item in secret["items"]} == {*URLS}, "the script can read what is mounted"
    assert not [volume for volume in pod_of(rendered())["volumes"] if "secret" in volume]
    shared = {"secretKeyRef": {"name": "a-job", "key": "job-secret"}}
    assert environment_of(rendered())["CLOUDTRAIN_SECRET"] == shared
