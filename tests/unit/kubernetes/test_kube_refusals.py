"""Refusals of clusters, as sentences. The messages are those of real servers and webhooks."""

from __future__ import annotations

import pytest

from cloudtrain.platforms.kubernetes.api.refusals import refusal

REFUSALS = [
    (
        'pods "toy-0-abcde" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8,cpu=4, used: '
        "requests.nvidia.com/gpu=4,cpu=2, limited: requests.nvidia.com/gpu=8,cpu=100",
        "the quota gpus of the namespace is exceeded: 8 requests.nvidia.com/gpu requested, 4 of 8 in use; 4 cpu "
        "requested, 2 of 100 in use",
    ),
    (
        'pods "toy" is forbidden: failed quota: compute: must specify limits.cpu for: train; limits.memory for: train',
        "the quota compute of the namespace requires every pod to specify limits.cpu, limits.memory",
    ),
    (
        'pods "toy" is forbidden: failed quota: compute: must specify limits.cpu,limits.memory',
        "the quota compute of the namespace requires every pod to specify limits.cpu,limits.memory",
    ),
    (
        'admission webhook "validate.kyverno.svc" denied the request: resource Job/ns/toy was blocked: no team label',
        "the admission webhook validate.kyverno.svc refuses it: resource Job/ns/toy was blocked: no team label",
    ),
    (
        'admission webhook "deny.test" denied the request without explanation',
        "the admission webhook deny.test refuses it: it gives no reason",
    ),
    (
        "jobs.batch \"toy\" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'all' denied request: no team",
        "the policy team refuses it: no team",
    ),
    (
        'pods "toy" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true (pod or container)',
        "the namespace enforces the Pod Security Standard restricted:latest: runAsNonRoot != true (pod or container)",
    ),
    (
        'pods "toy-0" is forbidden: error looking up service account ns/robot: serviceaccount "robot" not found',
        "the service account robot does not exist in the namespace",
    ),
    (
        'jobs.batch "toy" is forbidden: unable to create new content in namespace ns because it is being terminated',
        "the namespace is being deleted",
    ),
    (
        'pods "toy" is forbidden: [maximum cpu usage per Container is 2, but limit is 4]',
        "a LimitRange of the namespace forbids it: maximum cpu usage per Container is 2, but limit is 4",
    ),
]


@pytest.mark.parametrize(("message", "sentence"), REFUSALS, ids=lambda text: text[:30])
def test_refusals_are_sentences(message: str, sentence: str) -> None:
    found = refusal(message)
    assert found is not None
    assert found.sentence == sentence
    assert found.advice.endswith(".")


def test_the_error_of_a_quota_shows_how_to_look_at_it() -> None:
    found = refusal(REFUSALS[0][0])
    assert found is not None
    assert "kubectl describe quota gpus" in found.advice


def test_other_messages_do_not_count_as_refusals() -> None:
    assert refusal('pods "toy" not found') is None
    assert refusal('User "bob" cannot list resource "pods" in API group "" in the namespace "ns"') is None
