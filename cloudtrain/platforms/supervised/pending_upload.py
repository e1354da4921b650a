"""Sends the outputs of a completed training that could not be uploaded at its end."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import replace

from cloudtrain.contract import FailureClass, Host, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.observe import EventLog
from cloudtrain.platforms.common.request_body import request_settings
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.platforms.supervised.hosts import numbered_names, read_left
from cloudtrain.platforms.supervised.record import JobRecord
from cloudtrain.storage import Progress, uri_scheme

LOCK_SECONDS = 5.0


def is_pending(record: JobRecord) -> bool:
    """Whether the training is complete, and its outputs are still in the job folder."""
    return record.failure is not None and record.failure.failure_class == FailureClass.UPLOAD


def upload_pending(folder: JobFolder, progress: Progress) -> None:
    """Upload the outputs of all hosts and the last checkpoints, and record that the job is complete.

    Raises:
        PlatformError: another process uploads them.
        StorageError: the storage failed. Call it again.
    """
    from cloudtrain.platforms.supervised.upload_config import upload_config
    from cloudtrain.runtime.checkpoint_sync import CHECKPOINTS, CheckpointSync
    from cloudtrain.runtime.upload import remove_parts, upload_outputs

    lock = _lock(folder)
    try:
        record = folder.read_record()
        request = folder.read_request()
        settings = replace(request_settings(request), attempt=record.attempt)
        events = EventLog(folder.events, "upload")
        hosts = _hosts(folder, request["host_count"])
        configs = [upload_config(folder, settings, host, hosts) for host in hosts]
        results = upload_outputs(configs, progress, scratch=folder.path)
        results.record(events)
        remove_parts(configs[0])
        warnings = results.warnings
        if uri_scheme(settings.checkpoint_uri) == "s3":
            in_container = "checkpoint_path" in request
            checkpoints = folder.path / "checkpoints" if in_container else configs[0].paths.checkpoints
            path = request.get("checkpoint_path", CHECKPOINTS)
            sync = CheckpointSync(checkpoints, settings.checkpoint_uri, events, path=path, whole=in_container)
            warnings += sync.flush()
        for warning in warnings:
            events.emit("warning", message=warning)
        events.emit("job", status=str(JobStatus.COMPLETED), exit_code=0)
        done = replace(record, status=JobStatus.COMPLETED, exit_code=0, failure=None)
        folder.write_record(done)
    finally:
        os.close(lock)


def _lock(folder: JobFolder) -> int:
    """Take the folder's lock. A supervisor that has just recorded the end still holds it for a moment."""
    deadline = time.monotonic() + LOCK_SECONDS
    while (lock := folder.lock()) is None:
        if time.monotonic() > deadline:
            raise PlatformError(f"another process uploads the outputs of job {folder.name}")
        time.sleep(0.05)
    return lock


def _hosts(folder: JobFolder, count: int) -> list[str]:
    """The names of the job's hosts, the leader first."""
    found = {path.name for path in (folder.path / "hosts").glob("*") if path.is_dir()}
    if found == {*numbered_names(count)}:
        return numbered_names(count)
    for name in sorted(found):  # a scheduler has named them
        paths = folder.host(name)
        with contextlib.suppress(OSError, ValueError):
            document = json.loads(read_left(paths, paths.input_config / "resourceconfig.json"))
            hosts = Host.from_document(document).hosts
            if found == {*hosts}:
                return list(hosts)
    raise PlatformError(f"{folder.path} does not have the outputs of all hosts", hint="They were removed.")
