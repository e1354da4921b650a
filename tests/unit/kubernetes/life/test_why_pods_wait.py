"""The messages of schedulers, kubelets and registries about pods that wait, and the sentences that we make of them.

The texts were recorded on clusters of 1.20 to 1.36; those of the scheduler, the autoscalers and containerd are also in
their sources.
"""

from __future__ import annotations

import doctest

import pytest
from recorded_jobs import Objects, at, event, job, pod, told, unscheduled, waiting

from cloudtrain.platforms.kubernetes.life import reasons
from cloudtrain.platforms.kubernetes.life.objects import parse_time
from cloudtrain.platforms.kubernetes.life.pods import all_pods, current
from cloudtrain.platforms.kubernetes.life.reasons import why_no_image, why_not_created, why_unscheduled
from cloudtrain.platforms.kubernetes.life.waiting import why_no_container, why_waiting

VICTIMS = "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
HELPLESS = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


def test_the_examples_in_the_docstrings_hold():
    found = doctest.testmod(reasons)
    assert found.attempted and not found.failed


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            f"0/3 nodes are available: 3 Insufficient nvidia.com/gpu. {VICTIMS}",
            "0/3 nodes have enough free nvidia.com/gpu. Other pods use or reserve the rest: it starts when they end.",
        ),
        (
            f"0/3 nodes are available: 3 Insufficient nvidia.com/gpu. no new claims to deallocate, {HELPLESS}",
            "0/3 nodes have enough free nvidia.com/gpu. No node has that much, used or not",
        ),
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}, 2 Insufficient cpu. "
            f"{VICTIMS}",
            "0/3 nodes fit: 1 has a taint that the job does not tolerate (nvidia.com/gpu: present), 2 have too little "
            "free CPUs",
        ),
        (
            "0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 Insufficient memory",
            "0/4 nodes fit: 1 has a taint that the job does not tolerate, 3 have too little free memory",
        ),
        (
            "0/3 nodes are available: 3 node(s) had taint {gpu: true}, that the pod didn't tolerate.",
            "platform_options.tolerations",
        ),
        (
            "0/6 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 3 node(s) were "
            f"unschedulable. {HELPLESS}",
            "0/6 nodes fit: 3 lack the labels that the job requires, 3 are cordoned. Compare "
            "platform_options.node_selector",
        ),
        (
            "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/1 nodes are "
            "available: 1 Preemption is not helpful for scheduling.",
            "its PersistentVolumeClaim is not bound to a volume",
        ),
        (
            '0/3 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/3 nodes are available: 3 '
            "Preemption is not helpful for scheduling.",
            "the PersistentVolumeClaim data does not exist",
        ),
        ("0/5 nodes are unavailable: 5 Insufficient cpu.", "0/5 nodes have enough free CPUs"),
        (
            "pod group is not ready, 2 Pending, 2 minAvailable.",
            "its pods start together, and not all of them fit yet",
        ),
        ("no nodes available to schedule pods", "the cluster has no nodes"),
        ("a plugin of tomorrow disagrees", "the scheduler reports: a plugin of tomorrow disagrees"),
        ("", "the scheduler has not considered it yet"),
    ],
)
def test_messages_of_schedulers(message, expected):
    assert expected in str(why_unscheduled(message))


@pytest.mark.parametrize(
    ("message", "expected", "patience"),
    [
        (
            'failed to pull and unpack image "docker.io/library/nope:1": failed to resolve reference '
            '"docker.io/library/nope:1": docker.io/library/nope:1: not found',
            "image nope:1 does not exist (docker.io/library/nope:1: not found)",
            180,
        ),
        (
            'Back-off pulling image "nope:1": ErrImagePull: rpc error: code = Unknown desc = failed to pull and unpack '
            'image "docker.io/library/nope:1": failed to resolve reference "docker.io/library/nope:1": pull access '
            "denied, repository does not exist or may require authorization: server message: insufficient_scope: "
            "authorization failed",
            "the registry denies access to image nope:1, or it does not exist (pull access denied",
            180,
        ),
        (
            'failed to pull and unpack image "ghcr.io/a/b:c": failed to resolve reference "ghcr.io/a/b:c": failed to '
            "authorize: failed to fetch anonymous token: unexpected status from GET request to "
            "https://ghcr.io/token?scope=repository%3Aa%2Fb%3Apull&service=ghcr.io: 401 Unauthorized",
            "platform_options.image_pull_secrets",
            180,
        ),
        (
            'failed to pull and unpack image "docker.io/library/nope:1": failed to copy: httpReadSeeker: failed open: '
            "unexpected status code https://registry-1.docker.io/v2/library/nope/manifests/sha256:0: 429 Too Many "
            "Requests - Server message: toomanyrequests: You have reached your pull rate limit.",
            "the registry limits how often image nope:1 may be pulled",
            None,
        ),
        (
            'failed to pull and unpack image "docker.io/library/nope:1": no match for platform in manifest: not found',
            "image nope:1 does not exist for the processors of the node",
            180,
        ),
        (
            'Head "https://registry.exmaple/v2/nope/manifests/1": dial tcp: lookup registry.exmaple on 10.0.0.10:53: '
            "no such host",
            "the registry of image nope:1 has no address",
            1800,
        ),
        (
            "reading manifest 1 in docker.io/library/nope: manifest unknown",
            "image nope:1 does not exist",
            180,
        ),
        ('Get "https://registry/v2/": x509: certificate signed by unknown authority', "do not trust", 1800),
        ('Get "https://registry/v2/": dial tcp 10.1.1.1:443: i/o timeout', "does not answer", 1800),
        ("something of tomorrow", "image nope:1 cannot be pulled (something of tomorrow)", 1800),
        ("", "image nope:1 cannot be pulled.", 1800),
    ],
)
def test_messages_of_registries(message, expected, patience):
    found = why_no_image("ErrImagePull", message, "nope:1")
    assert expected in str(found)
    assert found.patience == patience


def test_an_image_without_a_valid_name_is_given_up_immediately():
    found = why_no_image("InvalidImageName", "couldn't parse image name: invalid reference format", "UPPER:1")
    assert str(found) == "'UPPER:1' is not the name of an image. Correct the image of the job."
    assert found.patience == 0


@pytest.mark.parametrize(
    ("words", "expected", "patience"),
    [
        (
            "exceeded quota: team, requested: requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=6, limited: "
            "requests.nvidia.com/gpu=8",
            "the quota team of the namespace is exceeded: 4 requests.nvidia.com/gpu requested, 6 of 8 in use. It "
            "starts when other jobs",
            None,
        ),
        (
            "exceeded quota: team, requested: limits.memory=64Gi,pods=1, used: limits.memory=0,pods=0, limited: "
            "limits.memory=32Gi,pods=10",
            "it requests more than the quota team of the namespace ever allows",
            180,
        ),
        (
            "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1",
            "is exceeded: 1 pods requested, 1 of 1 in use.",
            None,
        ),
        (
            "failed quota: team: must specify limits.cpu for: train",
            "requires every pod to specify limits.cpu",
            180,
        ),
        (
            'error looking up service account ml/trainer: serviceaccount "trainer" not found',
            "the service account trainer does not exist",
            180,
        ),
        (
            'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "train" must set '
            "securityContext.allowPrivilegeEscalation=false)",
            "the Pod Security Standard restricted:latest",
            180,
        ),
        ("no PriorityClass with name urgent was found", "the priority class urgent does not exist", 180),
        (
            "maximum memory usage per Container is 2Gi, but limit is 4Gi",
            "maximum memory usage per Container is 2Gi",
            180,
        ),
        ("tomorrow's plugin says no", "the cluster refuses its pods: tomorrow's plugin says no", 180),
    ],
)
def test_pods_that_are_not_created(words, expected, patience):
    found = why_not_created(f'Error creating: pods "train-0-x7k2p" is forbidden: {words}')
    assert expected in str(found)
    assert found.patience == patience


def test_a_webhook_that_refuses_pods():
    found = why_not_created(
        'Error creating: admission webhook "policy.example" denied the request: no :latest here'
    )
    assert "the admission webhook policy.example refuses it: no :latest here" in str(found)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            'secret "token" not found',
            "the Secret token does not exist in its namespace. Create it: kubectl create secret",
        ),
        ('configmap "train" not found', "the ConfigMap train does not exist"),
        ("couldn't find key hf in Secret ml/token", "the Secret token has no key hf"),
        (
            'container has runAsNonRoot and image will run as root (pod: "train-0", container: train)',
            "its image runs as root, which its pods may not",
        ),
        (
            "container has runAsNonRoot and image has non-numeric user (jovyan), cannot verify user is non-root",
            "its image names its user",
        ),
    ],
)
def test_containers_that_cannot_be_created(message, expected):
    assert expected in str(why_no_container(message))


def why_of(objects: Objects, now: float = 300):
    return why_waiting(objects, current(all_pods(objects.pods)), (parse_time(at(0)) or 0) + now)


def test_an_image_that_is_pulled_again_after_an_error():
    """A large one may arrive only after the time in which an error of this kind is given up."""
    waits = pod("train-0", "Pending", state=waiting("ImagePullBackOff", "no basic auth credentials"))
    failed = event(
        "Failed", 'Failed to pull image "registry.example/train:1": no basic auth credentials', waits
    )
    again = event("Pulling", 'Pulling image "registry.example/train:1"', waits, kind="Normal", after=25)
    one = job(hosts=1)
    now = (parse_time(at(0)) or 0) + 3600
    assert why_of(Objects(one, [waits], [failed])).is_hopeless(now)
    why = why_of(Objects(one, [waits], [failed, again]))
    assert why.sentence == "node gpu-1 pulls image registry.example/train:1 again"
    assert not why.is_hopeless(now)


def test_a_pod_on_a_node_that_is_off():
    """It stays, and is not replaced, until its node is back or gone."""
    pods = [pod("train-0"), pod("train-1", deletionTimestamp=at(200))]
    assert why_of(Objects(job(), pods), now=250) is None, "it may still end"
    why = why_of(Objects(job(), pods))
    assert "its node gpu-1 does not report that it has ended" in why.sentence
    assert why.advice.endswith("kubectl delete pod train-1-x7k2p --force") and not why.is_error


def test_a_job_whose_pods_run_does_not_wait():
    assert why_of(Objects(job(), [pod("train-0"), pod("train-1")])) is None


def test_an_error_of_one_pod_is_reported_before_the_others_start():
    pods = [
        pod("train-0", "Pending", state=waiting("ContainerCreating")),
        pod("train-1", "Pending", state=waiting("CreateContainerConfigError", 'secret "token" not found')),
    ]
    assert str(why_of(Objects(job(), pods))).startswith("the Secret token does not exist")


def test_a_pod_that_waits_alone_is_named():
    message = f"0/3 nodes are available: 3 Insufficient nvidia.com/gpu. {VICTIMS}"
    pods = [pod("train-0"), pod("train-1", "Pending", node="", conditions=[unscheduled(message)])]
    found = str(why_of(Objects(job(), pods)))
    assert found.startswith("train-1: 0/3 nodes have enough free nvidia.com/gpu")


def test_an_autoscaler_that_adds_a_node_is_named():
    waits = pod(
        "train-0",
        "Pending",
        node="",
        conditions=[unscheduled("0/1 nodes are available: 1 Insufficient cpu.")],
    )
    grows = event("TriggeredScaleUp", "pod triggered scale-up: [{gpu 1->2 (max: 2)}]", waits, kind="Normal")
    found = why_of(Objects(job(hosts=1), [waits], [grows]))
    assert str(found) == (
        "0/1 nodes have enough free CPUs. The cluster is adding a node for it, which may take some minutes."
    )
    full = event(
        "NotTriggerScaleUp", "pod didn't trigger scale-up: 2 max node group size reached", waits, after=20
    )
    found = why_of(Objects(job(hosts=1), [waits], [grows, full]))
    assert "does not add a node: 2 max node group size reached" in str(found)


def test_before_1_32_only_an_event_has_the_cause_of_a_back_off():
    waits = pod(
        "train-0",
        "Pending",
        state=waiting("ImagePullBackOff", 'Back-off pulling image "registry.example/train:1"'),
    )
    failed = event(
        "Failed",
        'Failed to pull image "registry.example/train:1": rpc error: code = NotFound desc = failed to pull and unpack '
        'image "registry.example/train:1": failed to resolve reference "registry.example/train:1": '
        "registry.example/train:1: not found",
        waits,
        after=200,
        first=30,
    )
    again = event("Failed", "Error: ErrImagePull", waits, after=201)
    found = why_of(Objects(job(hosts=1), [waits], [failed, again]))
    assert found.sentence.startswith(
        "image registry.example/train:1 does not exist (registry.example/train:1: not found)"
    )
    assert found.since == parse_time(at(30))
    assert not found.is_hopeless(found.since + 179)
    assert found.is_hopeless(found.since + 181)


def test_what_happens_on_the_node_before_the_start():
    waits = pod(
        "train-0", "Pending", state=waiting("ContainerCreating"), conditions=[told("PodScheduled", after=3)]
    )
    one = job(hosts=1)
    assert "its container is being created on node gpu-1" in str(why_of(Objects(one, [waits])))
    pulls = event("Pulling", 'Pulling image "registry.example/train:1"', waits, kind="Normal")
    assert "node gpu-1 pulls image registry.example/train:1" in str(why_of(Objects(one, [waits], [pulls])))
    missing = event(
        "FailedMount", 'MountVolume.SetUp failed for volume "config" : configmap "train" not found', waits
    )
    said = str(why_of(Objects(one, [waits], [missing])))
    assert "its files, in the ConfigMap train, are being created" in said
    for events in ([missing, pulls], [pulls, missing]):  # of the same second
        why = why_of(Objects(one, [waits], events))
        assert "node gpu-1 pulls image" in str(why)
        assert not why.is_hopeless((parse_time(at(0)) or 0) + 3600), (
            "the pod was faster than its ConfigMap, and its image is large"
        )
    foreign = event(
        "FailedMount", 'MountVolume.SetUp failed for volume "keys" : secret "train-keys" not found', waits
    )
    assert "the Secret train-keys does not exist" in str(why_of(Objects(one, [waits], [foreign])))
    server = event(
        "FailedMount", 'MountVolume.SetUp failed for volume "data" : mount failed: exit status 32', waits
    )
    assert "its volume data cannot be mounted: mount failed" in str(why_of(Objects(one, [waits], [server])))
    taken = event(
        "FailedAttachVolume",
        'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) x',
        waits,
    )
    assert "ReadWriteMany" in str(why_of(Objects(one, [waits], [taken])))
    network = event("FailedCreatePodSandBox", "failed to assign an IP address to container", waits)
    assert "cannot give it a network" in str(why_of(Objects(one, [waits], [network])))


def test_an_init_container_that_runs():
    waits = pod("train-0", "Pending", state=waiting("PodInitializing"))
    waits["status"]["initContainerStatuses"] = [{"name": "fetch", "state": {"running": {"startedAt": at(4)}}}]
    assert "its init container fetch runs on node gpu-1" in str(why_of(Objects(job(hosts=1), [waits])))


def test_a_quota_is_named_while_it_holds_back_pods():
    refused = event(
        "FailedCreate",
        'Error creating: pods "train-1-zzzzz" is forbidden: exceeded quota: team, requested: pods=1, used: pods=4, '
        "limited: pods=4",
    )
    assert "the quota team of the namespace is exceeded" in str(
        why_of(Objects(job(), [pod("train-0")], [refused]))
    )
    later = pod("train-1", "Pending", node="", after=20)
    found = str(why_of(Objects(job(hosts=3), [pod("train-0"), later], [refused])))
    assert "quota" not in found
