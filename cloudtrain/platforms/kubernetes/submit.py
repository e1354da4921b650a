"""Creates the objects of a job: first the main one, suspended, then those that it owns. Finally it is released.

If the client is killed meanwhile, a main object without pods remains, which `cloudtrain stop` removes. A request only
refers to the source, the bundled runtime and boto3. They are read when it is submitted, or printed for kubectl, and
reach the pods in ConfigMaps or through S3.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import uuid
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import CloudtrainError, InDoubt, InvalidJob, JobExists, PlatformError, StorageError
from cloudtrain.link.secret import fresh_secret
from cloudtrain.packaging import RuntimeArchive, pack_runtime
from cloudtrain.packaging.boto3_archive import BOTO3_FILE, pack_boto3
from cloudtrain.packaging.zipapp import RUNTIME_FILE
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.bundled_runtime import shared_folder
from cloudtrain.platforms.kubernetes.api.client import CREATE_ID
from cloudtrain.platforms.kubernetes.api.errors import KubeAlreadyExists, KubeError, KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import kind_of
from cloudtrain.platforms.kubernetes.labels import (
    BOTO3_URL,
    JOB,
    JOB_SECRET,
    QUEUE,
    RUNTIME_KEY,
    RUNTIME_URL,
    SOURCE_KEY,
    SOURCE_URL,
    UNRELEASED,
    job_labels,
    runtime_map,
)
from cloudtrain.platforms.kubernetes.life.objects import suspension
from cloudtrain.storage import join_uri, open_store, split_uri, state_home, uri_to_path
from cloudtrain.storage.atomic import write_file
from cloudtrain.storage.uri import split_bucket_uri

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from cloudtrain.platforms.kubernetes.api.client import Api
    from cloudtrain.platforms.kubernetes.api.kinds import Kind


def submit(request: Request, api: Api, urls: Mapping[str, str] | None = None) -> str:
    """Create the objects of ``request``, release the main one, and return its uid. If one is rejected, none remains.

    Args:
        urls: presigned URLs, by their keys in the Secret.

    Raises:
        JobExists: the namespace has an object with the kind and name of one of them.
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
        # the Secret comes last: no pod starts without it, and therefore none with a ConfigMap of another user
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
    """The main object, suspended so that nothing starts it, and without its queue, in which Kueue would admit it."""
    metadata, spec = main["metadata"], main["spec"]
    labels = {name: value for name, value in metadata["labels"].items() if name != QUEUE}
    annotations = {**metadata["annotations"], CREATE_ID: mark, UNRELEASED: "true"}
    held = suspension(main["kind"], True)
    if "runPolicy" in held:
        held = {"runPolicy": {**spec.get("runPolicy", {}), **held["runPolicy"]}}
    metadata = {**metadata, "labels": labels, "annotations": annotations}
    return {**main, "metadata": metadata, "spec": {**spec, **held}}


def _release(main: Mapping[str, Any], owner: Mapping[str, Any], api: Api) -> None:
    """Resume the main object, or put it into its queue. Raises PlatformError."""
    metadata: dict[str, Any] = {"uid": owner["metadata"]["uid"], "annotations": {UNRELEASED: None}}
    patch: dict[str, Any] = {"metadata": metadata}
    queue, labels = main["metadata"]["labels"].get(QUEUE), owner["metadata"].get("labels") or {}
    if queue:
        metadata["labels"] = {QUEUE: queue}
    elif QUEUE not in labels:  # otherwise Kueue has put it into a default queue, and starts it
        patch["spec"] = suspension(main["kind"], False)
    api.patch(kind_of(main), main["metadata"]["name"], patch)


def _is_refusal(error: BaseException) -> bool:
    """Whether the server has definitely refused to create the object."""
    return isinstance(error, JobExists) or (
        isinstance(error, KubeError) and 400 <= error.status < 500 and not error.is_transient
    )


def _undo(main: Mapping[str, Any], mark: str, api: Api, error: BaseException) -> None:
    """Delete the main object, which may exist even if the response to its creation was lost."""
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
    """The Secret of a job: the job secret, the values of its secret variables, and its URLs."""
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
    """The advice about the existing object of this name."""
    found: Mapping[str, Any] = {}
    with contextlib.suppress(PlatformError):
        found = api.get(kind, metadata["name"])["metadata"]
    if UNRELEASED in (found.get("annotations") or {}):
        return f"Its submission was interrupted, or is not over. Remove it with: cloudtrain stop {metadata['name']}"
    if JOB in (found.get("labels") or {}):
        command = f"kubectl delete -n {metadata['namespace']} {kind.resource} {metadata['name']}"
        return f"Or delete it: {command}"
    return "It does not belong to a job of cloudtrain."


LARGEST = 1 << 20
"""The maximum bytes that the API server accepts in one ConfigMap, before base64."""
LONGEST = 604_800
"""In seconds: a presigned URL of S3 is valid for at most 7 days."""


def with_files(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects of a request, with the files that its ConfigMaps deliver.

    Raises:
        InvalidJob: the source is too large for a ConfigMap.
        StorageError: the packed source is no longer in the cache of this machine.
    """
    files = body["files"]
    if files["delivery"] != "configmap":
        return list(body["objects"])
    name, path = body["objects"][0]["metadata"]["name"], uri_to_path(files["source"])
    try:
        source = path.read_bytes()
    except OSError as error:
        raise StorageError(
            f"the packed source cannot be read: {path}: {error.strerror}", hint="Submit the job again."
        ) from error
    content = {
        name: {SOURCE_KEY: source},
        runtime_map(name): {RUNTIME_KEY: _compressed(_runtime_archive(body).path)},
    }
    return [
        _filled(item, content[item["metadata"]["name"]]) if item["kind"] == "ConfigMap" else item
        for item in body["objects"]
    ]


def _runtime_archive(body: Mapping[str, Any]) -> RuntimeArchive:
    """The bundled runtime, which must be the same as the request's. Raises InvalidJob, StorageError."""
    archive = pack_runtime(state_home() / "runtime")
    if archive.sha256 != body["files"]["runtime_sha256"]:
        raise InvalidJob(
            "the request was rendered by another version of cloudtrain", hint="Render it again with this one."
        )
    return archive


def _compressed(runtime: Path) -> bytes:
    """The bundled runtime, compressed. The result is cached next to the runtime, because compression takes 0.15 s."""
    data, path = runtime.read_bytes(), runtime.with_name(RUNTIME_KEY)
    with contextlib.suppress(OSError, EOFError, zlib.error):
        kept = path.read_bytes()
        if gzip.decompress(kept) == data:
            return kept
    compressed = gzip.compress(data, mtime=0)
    with contextlib.suppress(OSError):  # on a full disk, the next submission compresses it again
        write_file(path, compressed)
    return compressed


def _filled(item: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
    size = sum(map(len, files.values())) + sum(len(text.encode()) for text in item.get("data", {}).values())
    if size > LARGEST:
        raise InvalidJob(
            f"source_dir: the packed source has {len(next(iter(files.values()))):,} bytes, and a ConfigMap takes "
            f"{LARGEST:,} with the rest of the job",
            hint="Deliver it through S3: platform_options.delivery: s3, with an output_path or code_location in S3. "
            "Or leave out what the script does not need: see .cloudtrainignore.",
        )
    return {**item, "binaryData": {name: base64.b64encode(data).decode() for name, data in files.items()}}


def deliver(body: Mapping[str, Any]) -> dict[str, str]:
    """Upload the runtime and boto3, and sign URLs; returns the values of the job's Secret.

    The source has been uploaded already. All three are named after their content, so most submissions find them there.

    Args:
        body: the body of a request with delivery by S3.

    Raises:
        InvalidJob: the request was rendered by another version of cloudtrain.
        StorageError: S3 refuses an upload, or there are no credentials.
    """
    files = body["files"]
    runtime, boto3 = _runtime_archive(body), pack_boto3(state_home() / "runtime")
    runtime_uri, boto3_uri = archive_uri(body, runtime, RUNTIME_FILE), archive_uri(body, boto3, BOTO3_FILE)
    with ThreadPoolExecutor(2) as pool:
        for upload in [pool.submit(_upload, runtime, runtime_uri), pool.submit(_upload, boto3, boto3_uri)]:
            upload.result()
    return {
        SOURCE_URL: _link(files["source"], files["source_sha256"]),
        RUNTIME_URL: _link(runtime_uri, runtime.sha256),
        BOTO3_URL: _link(boto3_uri, boto3.sha256),
    }


def archive_uri(body: Mapping[str, Any], archive: RuntimeArchive, name: str) -> str:
    """The URI of an archive that jobs share, below the code location."""
    location = body["files"]["location"] or split_uri(body["files"]["source"])[0]
    return join_uri(shared_folder(location), "runtime", archive.sha256, name)


def _upload(archive: RuntimeArchive, uri: str) -> None:
    folder, name = split_uri(uri)
    open_store(folder).upload(archive.path, name, if_absent=True)


def _link(uri: str, sha256: str) -> str:
    """The lines that `pod_start` reads: the URL, the URI for pods that have credentials, and the SHA-256."""
    return "\n".join([presign(uri), uri, sha256]).rstrip()


def presign(uri: str, seconds: int = LONGEST) -> str:
    """A URL that reads ``uri``. It expires with the credentials that sign it, if they are temporary.

    Raises:
        StorageError: there are no credentials, or no such bucket.
    """
    from cloudtrain.storage.errors import s3_errors

    bucket, key = split_bucket_uri(uri)
    with s3_errors(uri):
        return str(
            _signer(bucket).generate_presigned_url(
                "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=seconds
            )
        )


def _signer(bucket: str) -> S3Client:
    """A client for the bucket's own region, because a redirect to another host would invalidate the signature."""
    import boto3
    from botocore.config import Config

    from cloudtrain.storage.client import connection

    shared = connection()
    region = shared.client.meta.region_name
    style = {}
    if shared.is_aws:
        headers = shared.client.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
        region = headers.get("x-amz-bucket-region", region)
        style = {"addressing_style": "virtual"}
    config = Config(signature_version="s3v4", s3=style)  # type: ignore[arg-type]
    client: S3Client = boto3.Session().client("s3", region_name=region, config=config)
    return client
