"""Creates the objects of a job: the main one first, then those that it owns."""

from __future__ import annotations

import base64
import contextlib
import os
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import CloudtrainError, JobExists, PlatformError
from cloudtrain.link.secret import fresh_secret
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.kubernetes.api.client import CREATE_ID
from cloudtrain.platforms.kubernetes.api.errors import KubeAlreadyExists, KubeError, KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import kind_of
from cloudtrain.platforms.kubernetes.delivery import with_files
from cloudtrain.platforms.kubernetes.labels import JOB, job_labels
from cloudtrain.platforms.kubernetes.pod_files import JOB_SECRET

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api
    from cloudtrain.platforms.kubernetes.api.kinds import Kind


def submit(request: Request, api: Api, urls: Mapping[str, str] | None = None) -> str:
    """Create the objects of ``request``, and return the uid of the main one. If one cannot be created, none is left.

    Args:
        urls: presigned URLs, by their keys in the Secret.

    Raises:
        JobExists: the namespace has an object of this name and of the kind of one of them.
        InvalidJob: the source does not fit into a ConfigMap.
        PlatformError: the cluster refuses an object, or does not answer.
    """
    main, *others = with_files(request.body)
    metadata, mark = main["metadata"], uuid.uuid4().hex
    main = {**main, "metadata": {**metadata, "annotations": {**metadata["annotations"], CREATE_ID: mark}}}
    owner: dict[str, Any] | None = None
    try:
        owner = _create(main, api)
        reference = _reference(owner)
        # the Secret comes last: no pod starts without it, and so none with a ConfigMap of someone else
        for item in [*others, _secret(request, urls or {})]:
            metadata = {**item["metadata"], "ownerReferences": [reference]}
            _create({**item, "metadata": metadata}, api)
    except BaseException as error:
        if owner or not _is_refusal(error):
            _undo(main, mark, api, error)
        raise
    return str(owner["metadata"]["uid"])


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
            error.hint = (
                f"{error.hint} A part of the job may be in the cluster, and hold nodes: delete it with kubectl delete "
                f"-n {main['metadata']['namespace']} {kind.resource} {name}"
            ).lstrip()


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
            hint="Choose another job_name, or delete it: "
            f"kubectl delete -n {metadata['namespace']} {kind.resource} {metadata['name']}"
            if _is_of_a_job(kind, metadata["name"], api)
            else "It does not belong to a job of cloudtrain: choose another job_name.",
        ) from None


def _is_of_a_job(kind: Kind, name: str, api: Api) -> bool:
    """Whether the object belongs to a job, rather than to something else in the namespace."""
    with contextlib.suppress(PlatformError):
        return JOB in (api.get(kind, name)["metadata"].get("labels") or {})
    return False


def _reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
