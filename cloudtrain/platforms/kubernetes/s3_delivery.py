"""Brings the source, the runtime and boto3 to the pods through S3: uploads what is not there, and signs URLs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cloudtrain.packaging.boto3_archive import BOTO3_FILE, pack_boto3
from cloudtrain.packaging.zipapp import RUNTIME_FILE, RuntimeArchive
from cloudtrain.platforms.common.bundled_runtime import shared_folder
from cloudtrain.platforms.kubernetes.delivery import runtime_archive
from cloudtrain.platforms.kubernetes.labels import BOTO3_URL, RUNTIME_URL, SOURCE_URL
from cloudtrain.platforms.kubernetes.presigned import presign
from cloudtrain.storage import join_uri, open_store, split_uri, state_home


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
    runtime, boto3 = runtime_archive(body), pack_boto3(state_home() / "runtime")
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
