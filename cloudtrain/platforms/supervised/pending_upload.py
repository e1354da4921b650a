"""Uploads a job's outputs from its folder, when the job ends, or later if that failed."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from cloudtrain.contract import FailureClass, FailureReport, Host, JobStatus, Launcher, Settings
from cloudtrain.contract.request_body import request_settings
from cloudtrain.contract.text import one_line
from cloudtrain.errors import PlatformError
from cloudtrain.observe import EventLog
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.phases import Phases
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import numbered_names, read_left
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.storage import Progress, uri_scheme


def upload_config(folder: JobFolder, settings: Settings, host: str, hosts: Sequence[str]) -> HostConfig:
    """The configuration of one of ``hosts``. It is not read from the host's folder, which the job can change."""
    return HostConfig(
        paths=folder.host(host),
        settings=settings,
        host=Host(host, tuple(hosts)),
        hyperparameters={},
        arguments=(),
        channels={},
        launcher=Launcher(),
        distribution_hosts=tuple(hosts),
    )


def save_outputs(
    folder: JobFolder,
    settings: Settings,
    hosts: Sequence[str],
    phases: Phases,
    *,
    failed: bool,
    is_complete: bool = True,
    flush: Callable[[], list[str]] = list,
) -> tuple[list[str], FailureReport | None]:
    """Upload the outputs of all hosts; after a failure, only the leader's, without the model.

    Args:
        is_complete: whether a job that did not fail completed, rather than being stopped.
        flush: uploads the last checkpoints: after the model, or before the other outputs of a failed job.

    Returns warnings, and the failure of a completed job whose upload failed. A failed job keeps its own failure.
    """
    from cloudtrain.runtime.outputs.upload import upload_failure, upload_outputs

    warnings: list[str] = []
    saved = hosts[:1] if failed else hosts
    try:
        with phases("upload") as phase:
            if failed:
                warnings += flush()
            configs = [upload_config(folder, settings, host, hosts) for host in saved]
            results = upload_outputs(configs, phase.add, model=not failed, scratch=folder.path)
            results.record(phase.events)
            warnings += results.warnings
            if not failed:
                warnings += flush()
    except Exception as error:
        if not failed and is_complete:
            return warnings, upload_failure(error, hosts[0], folder.name, folder.path / "hosts")
        what = "failed" if failed else "stopped"
        warnings.append(f"the outputs of the {what} job could not be uploaded: {one_line(error)}")
    return warnings, None


LOCK_SECONDS = 5.0
SUPERVISOR_SECONDS = 60.0
"""How long the supervisor may take to end after it has recorded the end of the job."""


def is_pending(record: JobRecord) -> bool:
    """Whether training is complete, but its outputs are still only in the job folder."""
    return record.failure is not None and record.failure.failure_class == FailureClass.UPLOAD


def upload_pending(folder: JobFolder, progress: Progress) -> None:
    """Upload the outputs of all hosts and the last checkpoints, and record that the job is complete.

    Raises:
        PlatformError: another process uploads them.
        StorageError: the storage failed. The call can be repeated.
    """
    from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
    from cloudtrain.runtime.outputs.upload import remove_parts, upload_outputs

    lock = _lock(folder)
    try:
        record = folder.read_record()
        request = folder.read_request()
        settings = replace(request_settings(request), attempt=record.attempt)
        events = EventLog(folder.events, "upload")
        hosts = [*record.hosts] or _hosts(folder, request["host_count"])
        configs = [upload_config(folder, settings, host, hosts) for host in hosts]
        results = upload_outputs(configs, progress, scratch=folder.path)
        results.record(events)
        remove_parts(configs[0])
        warnings = results.warnings
        uri = settings.checkpoint_uri
        if "checkpoint_path" not in request:
            for config in configs:
                warnings += _upload_checkpoints(config, events)
        elif uri_scheme(uri) != "file":  # otherwise it is the folder itself
            path = request["checkpoint_path"]
            warnings += CheckpointSync(
                folder.path / "checkpoints", uri, events, path=path, whole=True
            ).flush()
        for warning in warnings:
            events.emit("warning", message=warning)
        events.emit("job", status=str(JobStatus.COMPLETED), exit_code=0)
        done = replace(record, status=JobStatus.COMPLETED, exit_code=0, failure=None)
        folder.write_record(done)
    finally:
        os.close(lock)


def _upload_checkpoints(config: HostConfig, events: EventLog) -> list[str]:
    """Upload the parts of its checkpoints that a host has not uploaded. Returns warnings. Raises StorageError."""
    from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync, read_record, record_path

    record = read_record(config.paths)
    if record is None and not config.host.leads:
        return [
            f"{config.host.current}: its checkpoints are not uploaded: there is no record of which are new"
        ]
    host = config.host.current if config.host.count > 1 else ""
    sync = CheckpointSync(
        config.paths.checkpoints,
        config.settings.checkpoint_uri,
        events,
        host=host,
        record=record_path(config.paths),
    )
    sync.resume(record or {})
    return sync.flush()


def _lock(folder: JobFolder) -> int:
    """Take the folder's lock. A supervisor that has just recorded the end still holds it for a moment."""
    began = time.monotonic()
    while (lock := folder.lock()) is None:
        patience = SUPERVISOR_SECONDS if folder.read_record().names_live_process else LOCK_SECONDS
        if time.monotonic() - began > patience:
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
