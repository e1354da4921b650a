"""Uploads the checkpoints of a job's containers while they run, and the model and other outputs at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cloudtrain.contract import Settings
from cloudtrain.observe import EventLog
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.runtime.checkpoint_sync import CheckpointSync
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.phases import Phases
from cloudtrain.runtime.upload import upload_outputs
from cloudtrain.storage import uri_scheme


class Outputs:
    """The outputs of one job."""

    def __init__(self, folder: JobFolder, settings: Settings, events: EventLog) -> None:
        self._folder = folder
        self._settings = settings
        self._events = events
        self._sync: CheckpointSync | None = None

    def restore(self, checkpoints: Path, phases: Phases) -> None:
        """Download the checkpoints of an earlier run to the folder ``checkpoints``, and start to upload new ones.

        Does nothing if the checkpoint URI is that folder. Raises StorageError.
        """
        if uri_scheme(self._settings.checkpoint_uri) == "file":
            return
        sync = CheckpointSync(checkpoints, self._settings.checkpoint_uri, self._events, whole=True)
        with phases("restore"):
            sync.restore()
        sync.start()
        self._sync = sync

    def save(self, hosts: list[str], attempt: int, phases: Phases, *, model: bool) -> list[str]:
        """Upload the last checkpoints and the outputs of ``hosts``, all together. Returns warnings.

        Raises StorageError.
        """
        environ = replace(self._settings, attempt=attempt).to_environ()
        with phases("upload") as phase:
            if self._sync:
                self._sync.flush()
            configs = [HostConfig.read(self._folder.host(host), environ) for host in hosts]
            results = upload_outputs(configs, phase.add, model=model)
            results.record(self._events)
        return results.warnings
