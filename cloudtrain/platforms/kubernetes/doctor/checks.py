"""The checks of a request, and those of a cluster without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.checks import Check, Finding
from cloudtrain.platforms.kubernetes.api.kinds import JOB, kind_of
from cloudtrain.platforms.kubernetes.doctor import access, capacity, references
from cloudtrain.platforms.kubernetes.doctor.cluster import Cluster, asked, ok
from cloudtrain.platforms.kubernetes.labels import QUEUE
from cloudtrain.platforms.kubernetes.life.objects import pod_sets
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
    # the check of the context fails if the cluster cannot be queried; for the others, that is unknown
    found: dict[str, Check] = {"context": partial(access.check_context, cluster)}
    found["version"] = asked(cluster, access.check_version)
    for name, check in _of_request(job, request) if request else _of_cluster():
        found[name] = asked(cluster, check)
    return {**found, **(dict(references.storage_checks(job)) if request else {})}


def _of_cluster() -> Iterator[tuple[str, _ClusterCheck]]:
    yield "rights", partial(access.check_rights, access.rights(JOB))
    yield "operators", access.check_operators
    yield "quota", partial(capacity.check_quota, [])
    yield "GPUs", capacity.check_devices


def _of_request(job: TrainingJob, request: Request) -> Iterator[tuple[str, _ClusterCheck]]:
    objects = request.body["objects"]
    main, pods = objects[0], list(pod_sets(objects[0]))
    kinds = {item["kind"]: item for item in objects}
    labels = main["metadata"].get("labels") or {}
    created = [kind_of(item) for item in objects if item is not main]
    wanted = access.rights(kind_of(main), created, has_queue=QUEUE in labels)
    yield "rights", partial(access.check_rights, wanted)
    yield "rendering", partial(access.check_main_kind, main, str(request.body.get("why", "")))
    yield "operators", access.check_operators
    if QUEUE in labels:
        yield "queue", partial(access.check_queue, main)
    if "PodGroup" in kinds:
        yield "gang", partial(access.check_gang, main, kinds["PodGroup"])
    count = sum(group.count for group in pods)
    names = f"{main['metadata']['name']} and the names of its {count} pod{'s' * (count != 1)}"
    yield "names", lambda _: ok(f"{names} are short enough for DNS")  # `render` has checked it
    yield "admission", partial(access.check_admission, main, pods)
    yield "quota", partial(capacity.check_quota, pods)
    yield "nodes", partial(capacity.check_nodes, pods)
    spec, own = pods[-1].spec, [item["metadata"]["name"] for item in objects]
    image = str(spec["containers"][0].get("image"))
    secrets = [str(one["name"]) for one in spec.get("imagePullSecrets") or []]
    yield "image", partial(references.check_image, image, bool(secrets))
    if secrets:
        yield "pull secrets", partial(references.check_pull_secrets, image, secrets)
    if account := spec.get("serviceAccountName"):
        yield "service account", partial(references.check_service_account, account)
    if priority := spec.get("priorityClassName"):
        yield "priority class", partial(references.check_priority, priority)
    if references.claims_of(pods):
        yield "volumes", partial(references.check_volumes, pods)
    if any(references.sources(own, pods)):
        yield "secrets", partial(references.check_sources, own, pods)
    if references.uses_s3(job):
        yield "S3 credentials", partial(references.check_credentials, pods)
