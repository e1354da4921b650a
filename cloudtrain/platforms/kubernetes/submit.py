"""Creates the objects of a job: the main one first, suspended, then those that it owns. The release comes last.

A client that is killed meanwhile leaves a main object that has no pods, and that `cloudtrain stop` removes.
"""

from __future__ import annotations

import base64
import contextlib
import os
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import CloudtrainError, InDoubt, JobExists, PlatformError
from cloudtrain.link.secret import fresh_secret
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.kubernetes.api.client import CREATE_ID
from cloudtrain.platforms.kubernetes.api.errors import KubeAlreadyExists, KubeError, KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import kind_of
from cloudtrain.platforms.kubernetes.delivery import with_files
from cloudtrain.platforms.kubernetes.labels import JOB, JOB_SECRET, QUEUE, UNRELEASED, job_labels
from cloudtrain.platforms.kubernetes.life.objects import suspension

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api
    from cloudtrain.platforms.kubernetes.api.kinds import Kind


def submit(request: Request, api: Api, urls: Mapping[str, str] | None = None) -> str:
    """Create the objects of ``request``, let the main one run, and return its uid. If one is refused, none is left.

    Args:
        urls: presigned URLs, by their keys in the Secret.

    Raises:
        JobExists: the namespace has an object of this name and of the kind of one of them.
        InvalidJob: the source does not fit into a ConfigMap.
        InDoubt: the main object may be in the cluster.
        PlatformError: the cluster refuses an object, or does not answer.
    """
    main, *others = with_files(request.body)
    mark = uuid.uuid4().hex
    owner: dict[str, Any] | None = None
    try:
        owner = _create(_held(main, mark), api)
        reference = {name: owner[name] for name in ("apiVersion", "kind")}
        reference |= {name: owner["metadata"][name] for name in ("name", "uid")}
        # the Secret comes last: no pod starts without it, and so none with a ConfigMap of someone else
        for item in [*others, _secret(request, urls or {})]:
            metadata = {**item["metadata"], "ownerReferences": [reference]}
            _create({**item, "metadata": metadata}, api)
        _release(main, owner, api)
    except BaseException as error:
        if owner or not _is_refusal(error):
            _undo(main, mark, api, error)
        raise
    return str(owner["metadata"]["uid"])


def _held(main: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """The main object so that nothing starts it: suspended, and in no queue, where Kueue would admit it."""
    metadata, spec = main["metadata"], main["spec"]
    labels = {name: value for name, value in metadata["labels"].items() if name != QUEUE}
    annotations = {**metadata["annotations"], CREATE_ID: mark, UNRELEASED: "true"}
    held = suspension(main["kind"], True)
    if "runPolicy" in held:
        held = {"runPolicy": {**spec.get("runPolicy", {}), **held["runPolicy"]}}
    metadata = {**metadata, "labels": labels, "annotations": annotations}
    return {**main, "metadata": metadata, "spec": {**spec, **held}}


def _release(main: Mapping[str, Any], owner: Mapping[str, Any], api: Api) -> None:
    """Let the main object run, or give it to its queue. Raises PlatformError."""
    metadata: dict[str, Any] = {"uid": owner["metadata"]["uid"], "annotations": {UNRELEASED: None}}
    patch: dict[str, Any] = {"metadata": metadata}
    queue, labels = main["metadata"]["labels"].get(QUEUE), owner["metadata"].get("labels") or {}
    if queue:
        metadata["labels"] = {QUEUE: queue}
    elif QUEUE not in labels:  # else Kueue has a default queue, and starts it
        patch["spec"] = suspension(main["kind"], False)
    api.patch(kind_of(main), main["metadata"]["name"], patch)


def _is_refusal(error: BaseException) -> bool:
    """Whether the server has answered that it does not create the object."""
    return isinstance(error, JobExists) or (
        isinstance(error, KubeError) and 400 <= error.status < 500 and not error.is_transient
    )


def _undo(main: Mapping[str, Any], mark: str, api: Api, error: BaseException) -> None:
    """Delete the main object, which may be there although the answer to its creation was lost."""
    kind, name = kind_of(main), main["metadata"]["name"]
    try:
        found = api.get(kind, name)["metadata"]
        if (found.get("annotations") or {}).get(CREATE_ID) == mark:
            api.delete(kind, name, uid=found["uid"])
    except KubeNotFound:
        pass
    except PlatformError:  # the first error is the one to report
        if isinstance(error, CloudtrainError):
            hint = (
                f"{error.hint} The job may be in the cluster: delete it with kubectl delete "
                f"-n {main['metadata']['namespace']} {kind.resource} {name}"
            )
            raise InDoubt(error.message, hint=hint.lstrip()) from error


def _secret(request: Request, urls: Mapping[str, str]) -> dict[str, Any]:
    """The Secret of a job: the key that its hosts share, the values of its variables, and its URLs."""
    values = {JOB_SECRET: fresh_secret(), **request.secrets, **urls}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": request.job_name,
            "namespace": request.body["namespace"],
            "labels": job_labels(request.job_name),
        },
        "immutable": True,
        "data": {name: base64.b64encode(os.fsencode(value)).decode() for name, value in values.items()},
    }


def _create(item: Mapping[str, Any], api: Api) -> dict[str, Any]:
    try:
        return api.create(item, only_metadata=True)
    except KubeAlreadyExists:
        kind, metadata = kind_of(item), item["metadata"]
        raise JobExists(
            f"there is already a {item['kind']} {metadata['name']} in the namespace {metadata['namespace']}",
            hint=_instead(kind, metadata, api),
        ) from None


def _instead(kind: Kind, metadata: Mapping[str, Any], api: Api) -> str:
    """The advice about an object that has the name already."""
    found: Mapping[str, Any] = {}
    with contextlib.suppress(PlatformError):
        found = api.get(kind, metadata["name"])["metadata"]
    if UNRELEASED in (found.get("annotations") or {}):
        return f"Its submission was interrupted, or is not over. Remove it with: cloudtrain stop {metadata['name']}"
    if JOB in (found.get("labels") or {}):
        command = f"kubectl delete -n {metadata['namespace']} {kind.resource} {metadata['name']}"
        return f"Or delete it: {command}"
    return "It does not belong to a job of cloudtrain."
