"""Brings the source, the bundled runtime and boto3 to the pods: in ConfigMaps, or through S3.

A request names the files only; they are read when it is submitted, or printed for kubectl.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import InvalidJob, StorageError
from cloudtrain.packaging import RuntimeArchive, pack_runtime
from cloudtrain.packaging.boto3_archive import BOTO3_FILE, pack_boto3
from cloudtrain.packaging.zipapp import RUNTIME_FILE
from cloudtrain.platforms.common.bundled_runtime import shared_folder
from cloudtrain.platforms.kubernetes.labels import (
    BOTO3_URL,
    RUNTIME_KEY,
    RUNTIME_URL,
    SOURCE_KEY,
    SOURCE_URL,
    runtime_map,
)
from cloudtrain.storage import join_uri, open_store, split_uri, state_home, uri_to_path
from cloudtrain.storage.atomic import write_file
from cloudtrain.storage.uri import split_bucket_uri

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGEST = 1 << 20
"""In bytes: what the API server accepts in one ConfigMap, before base64."""
LONGEST = 604_800
"""In seconds: S3 accepts no URL that is valid for longer than 7 days."""


def with_files(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects of a request, with the files that its ConfigMaps deliver.

    Raises:
        InvalidJob: the source is too large for a ConfigMap.
        StorageError: the packed source is not in the cache of this machine any more.
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
    """The bundled runtime, which must be the one that the request names. Raises InvalidJob, StorageError."""
    archive = pack_runtime(state_home() / "runtime")
    if archive.sha256 != body["files"]["runtime_sha256"]:
        raise InvalidJob(
            "the request was rendered by another version of cloudtrain", hint="Render it again with this one."
        )
    return archive


def _compressed(runtime: Path) -> bytes:
    """The bundled runtime, compressed. It is kept next to it: compressing it again takes 0.15 s."""
    data, path = runtime.read_bytes(), runtime.with_name(RUNTIME_KEY)
    with contextlib.suppress(OSError, EOFError, zlib.error):
        kept = path.read_bytes()
        if gzip.decompress(kept) == data:
            return kept
    compressed = gzip.compress(data, mtime=0)
    with contextlib.suppress(OSError):  # a full disk: the next submission compresses it again
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

    The source is uploaded before. All three are named after their content: most submissions find them there.

    Args:
        body: of a request whose files S3 delivers.

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
    """Where an archive is that jobs share: below the code location."""
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
    """A client for the bucket's own region: a redirect to another host would make the signature invalid."""
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
