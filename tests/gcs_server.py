"""A server with the JSON API of Google Cloud Storage: the package gcp-storage-emulator.

It lacks preconditions, which this module adds for creation: an insert with ``ifGenerationMatch=0`` fails with 412 if
the object exists (Cloud Storage documentation, "Request preconditions").
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects
from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import HANDLERS, POST, APIThread, Storage


def _insert(request: Any, response: Any, storage: Any, *args: Any, **kwargs: Any) -> None:
    if request.query.get("ifGenerationMatch") == ["0"] and "upload_id" not in request.query:
        name = request.query["name"][0] if "name" in request.query else _name(request.data)
        with contextlib.suppress(NotFound):
            storage.get_file_obj(request.params["bucket_name"], name)
            response.status = HTTPStatus.PRECONDITION_FAILED
            response.json({"error": {"code": 412, "message": "conditionNotMet"}})
            return
    objects.insert(request, response, storage, *args, **kwargs)


def _name(data: Any) -> str:
    return str(data.get("meta", data)["name"])


def _guard() -> None:
    for _, methods in HANDLERS:
        if methods.get(POST) is objects.insert:
            methods[POST] = _insert


class GCSServer:
    """A running server. ``url`` belongs into ``STORAGE_EMULATOR_HOST``."""

    def __init__(self, storage: Any, url: str) -> None:
        self._storage = storage
        self.url = url

    def create_bucket(self) -> str:
        """The name of a fresh bucket."""
        bucket = f"test-{secrets.token_hex(6)}"
        create_bucket(bucket, self._storage)
        return bucket


@contextlib.contextmanager
def start_gcs_server() -> Iterator[GCSServer]:
    """A server in a thread of this process; its objects are in memory."""
    _guard()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    storage = Storage(use_memory_fs=True)
    api = APIThread("127.0.0.1", port, storage, daemon=True)
    api.start()
    api.is_running.wait()
    try:
        yield GCSServer(storage, f"http://127.0.0.1:{port}")
    finally:
        api.join()
