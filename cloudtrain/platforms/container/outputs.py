"""Uploads the checkpoints of a job's containers while they run, and the model and other outputs at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudtrain.contract import Settings
from cloudtrain.observe import EventLog
from cloudtrain.platforms.supervised.upload_config import upload_config
from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
from cloudtrain.runtime.outputs.upload import upload_outputs
from cloudtrain.runtime.phases import Phases
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.storage import uri_scheme


class Outputs:
    """The outputs of one job."""

    def __init__(
        self,
        folder: JobFolder,
        request: Mapping[str, Any],
        settings: Settings,
        hosts: Sequence[str],
        events: EventLog,
    ) -> None:
        self._folder = folder
        self._path = request["checkpoint_path"]
        self._hosts = tuple(hosts)
        self._settings = settings
        self._events = events
        self._sync: CheckpointSync | None = None

    def restore(self, checkpoints: Path, phases: Phases) -> None:
        """Download the checkpoints of an earlier run to the folder ``checkpoints``, and start to upload new ones.

        Does nothing if the checkpoint URI is that folder. Raises StorageError.
        """
        if uri_scheme(self._settings.checkpoint_uri) == "file":
            return
        uri = self._settings.checkpoint_uri
        sync = CheckpointSync(checkpoints, uri, self._events, path=self._path, whole=True)
        with phases("restore"):
            sync.restore()
        sync.start()
        self._sync = sync

    def save(self, hosts: list[str], attempt: int, phases: Phases, *, model: bool) -> list[str]:
        """Upload the outputs of ``hosts``, all together, and then the last checkpoints. Returns warnings.

        After a failure, when there is no ``model``, the checkpoints come first. Raises StorageError.
        """
        warnings = []
        with phases("upload") as phase:
            if not model:
                warnings += self._flush()
            settings = replace(self._settings, attempt=attempt)
            configs = [upload_config(self._folder, settings, host, self._hosts) for host in hosts]
            results = upload_outputs(configs, phase.add, model=model, scratch=self._folder.path)
            results.record(self._events)
            warnings += results.warnings
            if model:
                warnings += self._flush()
        return warnings

    def _flush(self) -> list[str]:
        return self._sync.flush() if self._sync else []
