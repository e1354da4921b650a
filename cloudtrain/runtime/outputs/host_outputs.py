"""Uploads the outputs and the last checkpoints of a host, after its ranks have ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Callable

from cloudtrain.runtime.output import say
from cloudtrain.runtime.outputs.merge import stray_message
from cloudtrain.runtime.outputs.patience import run_within
from cloudtrain.runtime.outputs.tracker_files import hurried_upload, keep_tracker_files, last_upload

if TYPE_CHECKING:
    from cloudtrain.observe import EventLog
    from cloudtrain.runtime.host_config import HostConfig
    from cloudtrain.runtime.leader_links import Message
    from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
    from cloudtrain.runtime.outputs.upload import HostOutputs, Results
    from cloudtrain.runtime.phases import Phase, Phases
    from cloudtrain.storage import Progress

STALLED_SECONDS = 60.0
"""Seconds without progress, in addition to the grace, after which the last uploads of a failed job are abandoned."""


class OutputUpload:
    """The uploads of one host: by `run` if it is the only one, otherwise step by step on the leader's commands.

    Args:
        send: sends a message to the leader.
        sync: the checkpoints that are synced from the host's folder, if any.
        launched_at: the start time of the ranks, in seconds since the epoch.
    """

    def __init__(
        self,
        config: HostConfig,
        phases: Phases,
        events: EventLog,
        send: Callable[[Message], None],
        sync: CheckpointSync | None,
        launched_at: float,
    ) -> None:
        self._config = config
        self._phases = phases
        self._events = events
        self._send = send
        self._sync = sync
        self._launched_at = launched_at
        self._kept = keep_tracker_files(config, events)
        self._outputs: HostOutputs
        self._uploading: Phase

    def run(self, *, look_for_strays: bool) -> None:
        """Upload the outputs of the only host, and warn about models outside of the model's folder."""
        with self._phases("upload") as phase:
            from cloudtrain.runtime.outputs.upload import upload_outputs

            self._record(upload_outputs([self._config], phase.add))
            self._finish_sync()
            self._warn_all(last_upload(self._kept))
            strays = self.strays() if look_for_strays else []
            if strays:
                self._warn(stray_message(strays))

    def list_files(self) -> None:
        from cloudtrain.runtime.outputs.upload import HostOutputs

        self._uploading = self._phases.begin("upload")
        self._outputs = HostOutputs(self._config)
        self._send_all(self._outputs.list())

    def share(self, message: Message) -> None:
        self._send_all(self._outputs.share(message, self._uploading.add))

    def assemble(self, message: Message) -> None:
        self._record(self._outputs.assemble(message, self._uploading.add))
        self._finish_sync()
        self._warn_all(last_upload(self._kept))
        self._phases.end("upload")

    def strays(self) -> list[str]:
        """Models that the script wrote into its working folder, if the model's folder is empty."""
        model = self._config.paths.model
        if model.is_dir() and any(model.iterdir()):
            return []
        from cloudtrain.runtime.outputs.unsupported_outputs import find_stray_models

        return find_stray_models(self._config.paths.code, self._launched_at)

    def run_after_failure(self) -> None:
        """Upload the last checkpoints of a failed job, and on the leader its outputs, as far as possible."""
        host = self._config.host
        named = f"{host.current}: " if host.count > 1 else ""
        what = "checkpoints and outputs" if host.leads else "checkpoints"
        patience = self._config.settings.stop_grace + STALLED_SECONDS
        try:
            # checkpoints first, because the next attempt resumes from them
            if not run_within(patience, self._finish_sync):
                raise TimeoutError(f"nothing has moved for {patience:g} s")
            if host.leads:
                from cloudtrain.runtime.outputs.upload import remove_parts, upload_outputs

                self._record(upload_outputs([self._config], lambda count: None, model=False))
                remove_parts(self._config)
        except Exception as error:
            with contextlib.suppress(OSError):  # the job's own failure is the one to report
                self._events.emit("warning", message=f"{named}cannot upload the remaining {what}: {error}")
        with contextlib.suppress(OSError):
            self._warn_all(hurried_upload(self._kept))

    def _finish_sync(self, progress: Progress | None = None) -> None:
        """Upload the last checkpoints. Raises StorageError."""
        if self._sync:
            self._warn_all(self._sync.finish(progress))

    def _send_all(self, messages: Iterator[Message]) -> None:
        for message in messages:
            self._send(message)

    def _record(self, results: Results) -> None:
        results.record(self._events)
        self._warn_all(results.warnings)

    def _warn_all(self, messages: list[str]) -> None:
        for message in messages:
            self._warn(message)

    def _warn(self, message: str) -> None:
        self._events.emit("warning", message=message)
        say(message)
