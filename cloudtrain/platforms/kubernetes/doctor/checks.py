"""The checks of a request, and those of a cluster without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.checks import Check, CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.kinds import JOB, kind_of
from cloudtrain.platforms.kubernetes.doctor.admission import check_admission
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster, asked
from cloudtrain.platforms.kubernetes.doctor.claims import check_volumes, claims_of
from cloudtrain.platforms.kubernetes.doctor.context import check_context, check_version
from cloudtrain.platforms.kubernetes.doctor.image import check_image
from cloudtrain.platforms.kubernetes.doctor.nodes import check_devices, check_nodes
from cloudtrain.platforms.kubernetes.doctor.operators import (
    check_gang,
    check_main_kind,
    check_operators,
    check_queue,
)
from cloudtrain.platforms.kubernetes.doctor.pods import PodSet, main_object, pod_sets
from cloudtrain.platforms.kubernetes.doctor.quota import check_limits, check_quota
from cloudtrain.platforms.kubernetes.doctor.references import (
    check_priority,
    check_pull_secrets,
    check_service_account,
    check_sources,
    has_sources,
)
from cloudtrain.platforms.kubernetes.doctor.rights import check_rights, rights
from cloudtrain.platforms.kubernetes.doctor.storage import check_credentials, storage_checks, uses_s3
from cloudtrain.platforms.kubernetes.labels import QUEUE
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.spec import TrainingJob

_ClusterCheck = Callable[[Cluster], Finding]


def checks(job: TrainingJob, request: Request | None) -> Mapping[str, Check]:
    """All checks by name. They change nothing: what they create is a dry run.

    Without a request, these are the checks of the cluster and of the user's rights in it.
    """
    options = KubernetesOptions.of(job)
    body = request.body if request else {}
    cluster = Cluster(body.get("context") or options.context, body.get("namespace") or options.namespace)
    # the check of the context fails if the cluster cannot be asked; for the others, that is unknown
    found: dict[str, Check] = {"context": partial(check_context, cluster)}
    found["version"] = asked(cluster, check_version)
    named = _of_request(job, request) if request else _of_cluster()
    found.update((name, asked(cluster, check)) for name, check in named)
    if request:
        found.update(storage_checks(job))
    return found


def _of_cluster() -> Iterator[tuple[str, _ClusterCheck]]:
    yield "rights", partial(check_rights, rights(JOB))
    yield "operators", check_operators
    yield "quota", partial(check_quota, [])
    yield "GPUs", check_devices


def _of_request(job: TrainingJob, request: Request) -> Iterator[tuple[str, _ClusterCheck]]:
    main, pods = main_object(request), pod_sets(request)
    objects = request.body["objects"]
    kinds = {item["kind"]: item for item in objects}
    labels = main["metadata"].get("labels") or {}
    created = [kind_of(item) for item in objects if item is not main]
    wanted = rights(kind_of(main), created, has_queue=QUEUE in labels)
    yield "rights", partial(check_rights, wanted)
    yield "rendering", partial(check_main_kind, main, str(request.body.get("why", "")))
    yield "operators", check_operators
    if QUEUE in labels:
        yield "queue", partial(check_queue, main)
    if "PodGroup" in kinds:
        yield "gang", partial(check_gang, main, kinds["PodGroup"])
    yield "names", lambda _: _check_names(main, pods)
    yield "admission", partial(check_admission, main, pods)
    yield "quota", partial(check_quota, pods)
    yield "limits", partial(check_limits, pods)
    yield "nodes", partial(check_nodes, pods)
    own = [item["metadata"]["name"] for item in objects]
    yield from _of_pods(pods, own)
    if uses_s3(job):
        yield "S3 credentials", partial(check_credentials, pods)


def _of_pods(pods: list[PodSet], own: list[str]) -> Iterator[tuple[str, _ClusterCheck]]:
    """The checks of what the pods name."""
    spec = pods[-1].spec
    image = str(spec["containers"][0].get("image"))
    secrets = [str(one["name"]) for one in spec.get("imagePullSecrets") or []]
    yield "image", partial(check_image, image, bool(secrets))
    if secrets:
        yield "pull secrets", partial(check_pull_secrets, image, secrets)
    if account := spec.get("serviceAccountName"):
        yield "service account", partial(check_service_account, account)
    if priority := spec.get("priorityClassName"):
        yield "priority class", partial(check_priority, priority)
    if claims_of(pods):
        yield "volumes", partial(check_volumes, pods)
    if has_sources(own, pods):
        yield "secrets", partial(check_sources, own, pods)


def _check_names(main: Mapping[str, object], pods: list[PodSet]) -> Finding:
    """The names of the hosts in DNS, which `render` has checked."""
    metadata = main["metadata"]
    assert isinstance(metadata, dict)
    count = sum(group.count for group in pods)
    pods_text = "1 pod" if count == 1 else f"{count} pods"
    return Finding(
        CheckStatus.OK, f"{metadata['name']} and the names of its {pods_text} are short enough for DNS"
    )
