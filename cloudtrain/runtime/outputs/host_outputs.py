"""Uploads the outputs and the last checkpoints of a host, after its ranks have ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Callable

from cloudtrain.runtime.output import say
from cloudtrain.runtime.outputs.merge import stray_message

if TYPE_CHECKING:
    from cloudtrain.observe import EventLog
    from cloudtrain.runtime.host_config import HostConfig
    from cloudtrain.runtime.leader_links import Message
    from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
    from cloudtrain.runtime.outputs.upload import HostOutputs, Results
    from cloudtrain.runtime.phases import Phase, Phases
    from cloudtrain.storage import Progress


class OutputUpload:
    """The uploads of one host: alone, by `run`; with others, step by step on the leader's commands.

    Args:
        send: sends a message to the leader.
        sync: the checkpoints that are synced from the host's folder, if any.
        launched_at: when the ranks were started, in seconds since the epoch.
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
        self._outputs: HostOutputs
        self._uploading: Phase

    def run(self, *, look_for_strays: bool) -> None:
        """Upload the outputs of the only host, and warn of models that are not where they belong."""
        with self._phases("upload") as phase:
            self._upload_remaining(phase.add, model=True)
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
        self._phases.end("upload")

    def strays(self) -> list[str]:
        """Models that the script wrote into its working folder, if the model's folder is empty."""
        model = self._config.paths.model
        if model.is_dir() and any(model.iterdir()):
            return []
        from cloudtrain.runtime.outputs.unsupported_outputs import find_stray_models

        return find_stray_models(self._config.paths.code, self._launched_at)

    def run_after_failure(self) -> None:
        """Upload the last checkpoints of a failed job and the leader's outputs, as far as possible."""
        host = self._config.host
        named, what = f"{host.current}: " if host.count > 1 else "", "checkpoints"
        try:
            if host.leads:
                what = "checkpoints and outputs"
                from cloudtrain.runtime.outputs.upload import remove_parts

                self._upload_remaining(lambda count: None, model=False)
                remove_parts(self._config)
            else:
                self._finish_sync()
        except Exception as error:
            with contextlib.suppress(OSError):  # the job's own failure is the one to report
                self._events.emit("warning", message=f"{named}cannot upload the remaining {what}: {error}")

    def _upload_remaining(self, progress: Progress, *, model: bool) -> None:
        """Upload the outputs, and the model if the job succeeded; then the last checkpoints. Raises StorageError.

        The checkpoints of a failed job come first: the next attempt resumes from them.
        """
        from cloudtrain.runtime.outputs.upload import upload_outputs

        if not model:
            self._finish_sync()
        self._record(upload_outputs([self._config], progress, model=model))
        if model:
            self._finish_sync()

    def _finish_sync(self) -> None:
        """Upload the last checkpoints. Raises StorageError."""
        if self._sync:
            for warning in self._sync.finish():
                self._warn(warning)

    def _send_all(self, messages: Iterator[Message]) -> None:
        for message in messages:
            self._send(message)

    def _record(self, results: Results) -> None:
        results.record(self._events)
        for warning in results.warnings:
            self._warn(warning)

    def _warn(self, message: str) -> None:
        self._events.emit("warning", message=message)
        say(message)
