"""Runs the phases that prepare a host for its ranks: source, channels, checkpoints, requirements."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Callable

from cloudtrain.contract.trackers import wants_mlflow_run
from cloudtrain.errors import NotFound, StorageError
from cloudtrain.runtime.inputs.fetch import fetch_channel, fetch_source, mount_channel, open_pipes
from cloudtrain.runtime.launchers.horovod import HorovodChoice
from cloudtrain.runtime.output import say
from cloudtrain.storage import uri_scheme

if TYPE_CHECKING:
    from cloudtrain.contract.channels import ChannelInput
    from cloudtrain.observe import EventLog
    from cloudtrain.runtime.host_config import HostConfig
    from cloudtrain.runtime.inputs.mlflow_runs import MlflowRuns
    from cloudtrain.runtime.inputs.pipes import PipeChannel
    from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
    from cloudtrain.runtime.phases import Phase, Phases
    from cloudtrain.storage.mount import S3Mount


class Preparation:
    """The phases of one host before the launch, and their results.

    Args:
        on_pipe_error: called, in another thread, if the data of a pipe cannot be read.
    """

    def __init__(
        self,
        config: HostConfig,
        environ: Mapping[str, str],
        phases: Phases,
        events: EventLog,
        on_pipe_error: Callable[[Exception], None],
    ) -> None:
        self._config = config
        self._environ = environ
        self._phases = phases
        self._events = events
        self._on_pipe_error = on_pipe_error
        self.python = ""
        """The interpreter that has the job's requirements."""
        self.horovod = HorovodChoice()
        """The choice that rank 0's host makes for all hosts."""
        self.mlflow_runs: Mapping[str, str] = {}
        """The runs that the ranks continue: see `mlflow_runs`."""
        self.sync: CheckpointSync | None = None
        self.inputs: list[PipeChannel | S3Mount] = []
        """The pipes and mounts to close when the job ends."""

    def run(self) -> None:
        """Run all phases. Raises CloudtrainError or OSError, and then leaves the failed phase open."""
        config = self._config
        if not config.has_ranks:
            return
        search = self._search_mlflow()
        if config.source_uri:
            with self._phases("unpack"):
                fetch_source(config)
            if config.settings.no_opt_ml and config.host.leads and config.settings.attempt == 0:
                self._warn_about_opt_ml()
        if config.settings.channels:
            with self._phases("fetch") as phase:
                for channel in config.inputs:
                    self._bring_channel(channel, phase)
        if config.settings.checkpoint_uri:
            from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync, record_path

            with self._phases("restore"):
                self.sync = CheckpointSync(
                    config.paths.checkpoints,
                    config.settings.checkpoint_uri,
                    self._events,
                    host=config.host.current if config.host.count > 1 else "",
                    record=record_path(config.paths),
                )
                self.sync.restore()
        config.check_python()
        with self._phases("requirements"):
            self.python = config.python
            if config.is_package or (config.paths.code / "requirements.txt").is_file():
                from cloudtrain.runtime.inputs.requirements import install  # slow to import

                self.python = install(
                    config.paths.code,
                    python=config.python,
                    package=config.is_package,
                    cache=config.settings.requirements_cache,
                    say=say if config.host.leads or config.settings.requirements_cache else _say_nothing,
                    leads=config.host.leads,
                )
        if config.host.current == config.distribution_hosts[0]:
            self.horovod = HorovodChoice.make(config.launcher, self.python, self._environ)
        if search:
            self.mlflow_runs = search.get()

    def _search_mlflow(self) -> MlflowRuns | None:
        """Start the search for the runs of earlier attempts if the user requests it."""
        if not wants_mlflow_run(self._environ):
            return None
        from cloudtrain.runtime.inputs.mlflow_runs import MlflowRuns

        return MlflowRuns(self._config.run_id, self._environ, self._warn)

    def _warn(self, message: str) -> None:
        with contextlib.suppress(OSError):  # a full disk
            self._events.emit("warning", message=message)
        say(message)

    def _warn_about_opt_ml(self) -> None:
        from cloudtrain.contract.opt_ml import advice, find_uses, show_uses, source_texts

        uses = find_uses(source_texts(self._config.paths.code))
        if uses:
            reason = self._config.settings.no_opt_ml
            message = f"{show_uses(uses)}, but this job has no /opt/ml: {reason}. {advice(uses[0].path)}"
            self._warn(message)

    def _bring_channel(self, channel: ChannelInput, phase: Phase) -> None:
        """Provide a channel in its input mode. If a FastFile channel cannot be mounted, copy its data."""
        if channel.mode == "Pipe":
            self.inputs.append(open_pipes(self._config, channel, self._on_pipe_error))
            return
        if channel.mode == "FastFile" and uri_scheme(channel.uri) == "s3":
            try:
                self.inputs.append(mount_channel(self._config, channel))
            except NotFound:
                raise
            except StorageError as error:
                if self._config.host.leads:
                    say(f"channel {channel.name}: FastFile copies the data: {error.message}")
            else:
                return
        fetch_channel(self._config, channel, phase.add_total, phase.add)


def _say_nothing(_line: str) -> None:
    """The progress callback of hosts whose output would only repeat the leader's."""
