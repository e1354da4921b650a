"""The hosts of one job as containers on a private network."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

from cloudtrain.contract import FailureReport, Settings
from cloudtrain.contract.request_body import request_settings
from cloudtrain.contract.text import one_line
from cloudtrain.engine.client import EngineClient
from cloudtrain.engine.engine import find_engine
from cloudtrain.engine.pulling import ensure_image
from cloudtrain.errors import PlatformError
from cloudtrain.observe import EventLog, parse_events
from cloudtrain.observe.growing import Bookmark, new_lines
from cloudtrain.platforms.container.container_host import ContainerHost
from cloudtrain.platforms.container.inputs import Inputs
from cloudtrain.platforms.container.specs import container_spec, job_labels, network_name
from cloudtrain.platforms.supervised.pending_upload import upload_config
from cloudtrain.runtime.diagnose.ranks import report_error
from cloudtrain.runtime.metrics import MetricFinder
from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
from cloudtrain.runtime.outputs.upload import upload_failure, upload_outputs
from cloudtrain.runtime.phases import Phases
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import FolderHosts, numbered_names
from cloudtrain.storage import uri_scheme
from cloudtrain.storage.retry_policy import Patience, using


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


class _Cancelled(Exception):
    """The attempt was stopped before its containers started."""


class ContainerHosts(FolderHosts):
    """`Hosts` in containers. A separate thread prepares and starts them, and can be stopped."""

    interface = "eth0"
    upload = False

    def __init__(self, folder: JobFolder, _lock: int) -> None:
        super().__init__(folder, numbered_names(folder.read_request()["host_count"]))
        self._settings = request_settings(self._request)
        self._has_runtime = self._request["runtime"] == "cloudtrain"
        self.end_seconds = 60.0 if self._has_runtime else 0.0  # the grace limits an image's own program
        self._events = EventLog(folder.events, "supervisor")
        self._phases = Phases(self._events)
        self._network = network_name(folder.name, folder.path)
        self._inputs = Inputs(folder, self._request, self._settings, self.names)
        self._outputs = Outputs(folder, self._request, self._settings, self.names, self._events)
        self._client: EngineClient | None = None
        self._hosts: dict[str, ContainerHost] = {}
        self._containers: list[str] = []
        self._starting: threading.Thread | None = None
        self._attempt = 0
        self._heard = Bookmark()
        self._listening: set[tuple[str, str]] = set()
        """The hosts, with their attempts, whose runtimes have recorded an event up to the mark."""

    def start(self, attempt: int, log: int) -> dict[str, ContainerHost]:
        self._attempt = attempt
        self._hosts = {name: self._host(name, attempt) for name in self.names}
        self._starting = threading.Thread(target=self._start_all, args=(attempt, os.dup(log)), daemon=True)
        self._starting.start()
        return self._hosts

    def finish(self, *, failed: bool) -> FailureReport | None:
        if self._starting:
            self._starting.join()
        removing = threading.Thread(target=self._remove)
        removing.start()
        report = self._save(failed) if self._containers else None
        removing.join()
        self._inputs.close()
        self._containers.clear()
        return report

    def _host(self, name: str, attempt: int) -> ContainerHost:
        paths = self._folder.host(name)
        if self._has_runtime:
            return ContainerHost(name, paths, own_program=False, listens=lambda: self._listens(name, attempt))
        several = len(self.names) > 1
        definitions = self._settings.metric_definitions
        return ContainerHost(
            name,
            paths,
            own_program=True,
            prefix=f"[{name}] " if several else "",
            metrics=MetricFinder(definitions, self._events) if definitions else None,
        )

    def _listens(self, host: str, attempt: int) -> bool:
        """Whether the runtime of ``host`` has recorded its first event."""
        for lines in new_lines(self._folder.read_events, self._heard):
            for event in parse_events(lines):
                if event.get("event") == "host":
                    self._listening.add((str(event.get("source")), str(event.get("attempt"))))
        return (host, str(attempt)) in self._listening

    # -- starts the containers, in a separate thread

    def _start_all(self, attempt: int, log: int) -> None:
        try:
            client = self._client = self._client or self._prepare(log)
            self._begin(client, attempt, log)
        except Exception as error:
            report = None
            if not self._cancelled:  # no host is to blame
                report = replace(report_error(error, "", self._phases.current or "start"), host=None)
            for host in self._hosts.values():
                host.give_up(report)
        finally:
            os.close(log)

    def _prepare(self, log: int) -> EngineClient:
        """Connect to the engine, pull the image and download the data, once for all attempts."""

        def say(line: str) -> None:
            os.write(log, f"[cloudtrain] {line}\n".encode())

        image_failed = threading.Event()

        def check() -> None:
            self._check()
            if image_failed.is_set():
                raise _Cancelled

        def bring_data() -> None:
            with using(Patience(warn=self._warn, until=self._end_of_start)):
                self._inputs.bring(self._phases, check, say)
                self._outputs.restore(self._inputs.checkpoints, self._phases)

        with ThreadPoolExecutor(1) as pool:
            data = pool.submit(bring_data)
            try:
                client = EngineClient.connect(find_engine(self._request.get("engine")))
                image, pull = self._request["image"], self._request["pull"]
                ensure_image(client, image, pull, self._phases, self._check)
            except BaseException:
                image_failed.set()
                raise
        data.result()
        return client

    def _begin(self, client: EngineClient, attempt: int, log: int) -> None:
        user, memory = client.user(), client.memory()
        labels = job_labels(self._folder.name, self._folder.path)
        client.create_network(self._network, labels, internal=self._request["network_isolation"])

        def begin(host: ContainerHost) -> None:
            binds = self._inputs.of(host.name)
            spec = container_spec(
                self._folder,
                self._request,
                self.names.index(host.name),
                host.name,
                attempt,
                binds,
                user,
                memory,
            )
            container = client.create(spec)
            self._containers.append(container)
            self._check()
            host.run(client, container, spec, os.dup(log))

        self._inputs.open(self._on_pipe_error)
        with ThreadPoolExecutor(len(self._hosts)) as pool:
            begun = [pool.submit(begin, host) for host in self._hosts.values()]
        for task in begun:
            task.result()

    def _on_pipe_error(self, error: Exception) -> None:
        """The data of a pipe cannot be read. Called by the thread that feeds it."""
        report = replace(report_error(error, "", "fetch"), host=None)
        for host in self._hosts.values():
            host.give_up(report)

    def _end_of_start(self) -> float | None:
        """When to give up storage that is unavailable: now, once the attempt is stopped."""
        return time.monotonic() if self._cancelled else None

    @property
    def _cancelled(self) -> bool:
        return any(host.cancelled for host in self._hosts.values())

    def _check(self) -> None:
        if self._cancelled:
            raise _Cancelled

    # -- after the containers have ended

    def _save(self, failed: bool) -> FailureReport | None:
        """Upload the outputs. After a failure, only the leader's, without the model."""
        hosts = list(self._hosts)
        try:
            saved = hosts[:1] if failed else hosts
            for warning in self._outputs.save(saved, self._attempt, self._phases, model=not failed):
                self._warn(warning)
                self._say(warning)
        except Exception as error:
            if not failed:
                if all(host.poll() == 0 for host in self._hosts.values()):
                    folder = self._folder.path / "hosts"
                    return upload_failure(error, hosts[0], self._folder.name, folder)
                self._warn(f"the outputs of the stopped job could not be uploaded: {one_line(error)}")
                return None
            # report the job's own failure, not this one
            self._warn(f"the outputs of the failed job could not be uploaded: {one_line(error)}")
        return None

    def _remove(self) -> None:
        if self._client is None:
            return
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._try, repeat(self._client.remove), self._containers))
        self._try(self._client.remove_network, self._network)

    def _try(self, remove: Callable[[str], None], what: str) -> None:
        try:
            remove(what)
        except PlatformError as error:
            self._warn(f"{error.message}; run `cloudtrain clean` to try again")

    def _say(self, message: str) -> None:
        with contextlib.suppress(OSError):
            self._folder.append_to_log(f"[cloudtrain] {message}\n")

    def _warn(self, message: str) -> None:
        with contextlib.suppress(OSError):  # a full disk
            self._events.emit("warning", message=message)
