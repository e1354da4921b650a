"""The checks of a request or, without one, of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.checks import Check, Finding, Once, ok, unknown
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import KubeError, KubeForbidden
from cloudtrain.platforms.kubernetes.api.kinds import JOB, kind_of
from cloudtrain.platforms.kubernetes.doctor import access, pods as of_pods
from cloudtrain.platforms.kubernetes.doctor.image import check_image
from cloudtrain.platforms.kubernetes.labels import QUEUE
from cloudtrain.platforms.kubernetes.life.objects import pod_sets, text
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.spec import TrainingJob

_ClusterCheck = Callable[[Api], Finding]


def _connect(context: str | None, namespace: str | None) -> Api:
    """The API of the cluster, after a first response from it. Raises CloudtrainError."""
    api = Api.connect(context, namespace)
    api.server_version()
    return api


def checks(job: TrainingJob, request: Request | None) -> Mapping[str, Check]:
    """All checks by name. They change nothing: objects are created in dry runs only.

    Without a request, only the cluster and the user's rights in it are checked.
    """
    options = KubernetesOptions.of(job)
    body = request.body if request else {}
    place = body.get("context") or options.context, body.get("namespace") or options.namespace
    connect = Once(partial(_connect, *place))
    found: dict[str, Check] = {"context": lambda: access.check_context(connect())}
    found["version"] = partial(
        _unless_denied, connect, partial(access.check_version, has_spares=bool(job.spare_hosts))
    )
    for name, check in _of_request(job, request) if request else _of_cluster():
        found[name] = partial(_unless_denied, connect, check)
    return {**found, **(dict(of_pods.storage_checks(job)) if request else {})}


def _unless_denied(connect: Once[Api], check: _ClusterCheck) -> Finding:
    """The finding of ``check``; unknown if the user is denied access, or the cluster does not respond."""
    try:
        api = connect()
    except CloudtrainError:  # the check of the context reports why
        return unknown("the cluster could not be asked: see context")
    try:
        return check(api)
    except KubeError as error:
        return unknown(error.message, "" if isinstance(error, KubeForbidden) else error.hint)
    except PlatformError as error:
        return Finding.of(error)


def _of_cluster() -> Iterator[tuple[str, _ClusterCheck]]:
    yield "rights", partial(access.check_rights, access.rights(JOB))
    yield "operators", access.check_operators
    yield "GPUs", of_pods.check_devices


def _of_request(job: TrainingJob, request: Request) -> Iterator[tuple[str, _ClusterCheck]]:
    objects = request.body["objects"]
    main, pods = objects[0], list(pod_sets(objects[0]))
    groups = [item for item in objects if item["kind"] == "PodGroup"]
    queue = text(main, "metadata", "labels", QUEUE)
    created = [kind_of(item) for item in objects if item is not main]
    wanted = access.rights(kind_of(main), created, has_queue=bool(queue))
    yield "rights", partial(access.check_rights, wanted)
    yield "rendering", partial(of_pods.check_main_kind, main, str(request.body.get("why", "")))
    yield "operators", access.check_operators
    if queue:
        yield "queue", partial(of_pods.check_queue, queue)
    if groups:
        yield "gang", partial(of_pods.check_gang, main, groups[0])
    count = sum(group.count for group in pods)
    names = f"{main['metadata']['name']} and the names of its {count} pod{'s' * (count != 1)}"
    yield "names", lambda _: ok(f"{names} are short enough for DNS")  # `render` has checked it
    yield "admission", partial(of_pods.check_admission, main, pods)
    yield "quota", partial(of_pods.check_quota, pods)
    yield "nodes", partial(of_pods.check_nodes, pods)
    spec, own = pods[-1].spec, [item["metadata"]["name"] for item in objects]
    secrets = [str(one["name"]) for one in spec.get("imagePullSecrets") or []]
    image = str(spec["containers"][0].get("image"))
    yield "image", lambda _: check_image(image, bool(secrets))
    if secrets:
        yield "pull secrets", partial(of_pods.check_pull_secrets, secrets)
    if account := spec.get("serviceAccountName"):
        yield "service account", partial(of_pods.check_service_account, account)
    if priority := spec.get("priorityClassName"):
        yield "priority class", partial(of_pods.check_priority, priority)
    if claims := of_pods.claims_of(pods):
        yield "volumes", partial(of_pods.check_volumes, claims, count)
    if sources := sorted(set(of_pods.sources(own, pods)), key=str):
        yield "secrets", partial(of_pods.check_sources, sources)
    if of_pods.uses_s3(job):
        yield "S3 credentials", partial(of_pods.check_credentials, pods)
