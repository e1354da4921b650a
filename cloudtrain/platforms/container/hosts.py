"""The hosts of one job as containers on a private network."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat

from cloudtrain.contract import FailureReport
from cloudtrain.contract.request_body import request_settings
from cloudtrain.engine.client import EngineClient
from cloudtrain.engine.engine import find_engine
from cloudtrain.engine.pulling import ensure_image
from cloudtrain.errors import PlatformError
from cloudtrain.observe import parse_events
from cloudtrain.observe.growing import Bookmark, new_lines
from cloudtrain.platforms.container.container_host import ContainerHost
from cloudtrain.platforms.container.inputs import Inputs
from cloudtrain.platforms.container.specs import container_spec, job_labels, network_name
from cloudtrain.platforms.supervised.pending_upload import save_outputs
from cloudtrain.runtime.diagnose.ranks import report_error
from cloudtrain.runtime.metrics import MetricFinder
from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
from cloudtrain.runtime.phases import Phases
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import FolderHosts, numbered_names
from cloudtrain.storage import uri_scheme
from cloudtrain.storage.retry_policy import Patience, using


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
        self._phases = Phases(self._events)
        self._network = network_name(folder.name, folder.path)
        self._inputs = Inputs(folder, self._request, self._settings, self.names)
        self._sync: CheckpointSync | None = None
        self._client: EngineClient | None = None
        self._has_data = False
        """Whether the inputs of all attempts are on this machine."""
        self._hosts: dict[str, ContainerHost] = {}
        self._containers: list[str] = []
        self._starting: threading.Thread | None = None
        self._attempt = 0
        self._heard = Bookmark()
        self._listening: set[tuple[str, str]] = set()
        """The hosts, with their attempts, whose runtimes have recorded an event so far."""

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

    # -- start of the containers, in a separate thread

    def _start_all(self, attempt: int, log: int) -> None:
        try:
            self._begin(*self._prepare(log), attempt, log)
        except Exception as error:
            report = None
            if not self._cancelled:  # not the failure of a particular host
                report = replace(report_error(error, "", self._phases.current or "start"), host=None)
            for host in self._hosts.values():
                host.give_up(report)
        finally:
            os.close(log)

    def _prepare(self, log: int) -> tuple[EngineClient, str | None, int]:
        """Pull the image and download the data, once for all attempts, and create the network.

        All concurrently, because Docker takes as long to describe itself as to create a network. Returns the client,
        its user and its memory.
        """
        has_failed = threading.Event()

        def check() -> None:
            self._check()
            if has_failed.is_set():
                raise _Cancelled

        with ThreadPoolExecutor(2) as pool:
            data = pool.submit(self._bring_data, log, check)
            try:
                client = self._client = self._client or self._connect()
                labels = job_labels(self._folder.name, self._folder.path)
                internal = self._request["network_isolation"]
                network = pool.submit(client.create_network, self._network, labels, internal=internal)
                user, memory = client.user(), client.memory()
                network.result()
            except BaseException:
                has_failed.set()
                raise
        data.result()
        return client, user, memory

    def _connect(self) -> EngineClient:
        """Connect to the engine, and make sure that it has the image."""
        client = EngineClient.connect(find_engine(self._request.get("engine")))
        ensure_image(client, self._request["image"], self._request["pull"], self._phases, self._check)
        return client

    def _bring_data(self, log: int, check: Callable[[], object]) -> None:
        if self._has_data:
            return

        def say(line: str) -> None:
            os.write(log, f"[cloudtrain] {line}\n".encode())

        with using(Patience(warn=self._warn, until=self._end_of_start)):
            self._inputs.bring(self._phases, check, say)
            self._restore()
        self._has_data = True

    def _restore(self) -> None:
        """Download the checkpoints of an earlier run, and start to upload new ones. Raises StorageError.

        Does nothing if the checkpoint URI is a local folder, which the containers use directly.
        """
        uri = self._settings.checkpoint_uri
        if uri_scheme(uri) == "file":
            return
        path = self._request["checkpoint_path"]
        sync = CheckpointSync(self._inputs.checkpoints, uri, self._events, path=path, whole=True)
        with self._phases("restore"):
            sync.restore()
        sync.start()
        self._sync = sync

    def _begin(self, client: EngineClient, user: str | None, memory: int, attempt: int, log: int) -> None:
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
                self.ran,
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
        """Fail all hosts, because the data of a pipe cannot be read. Called by the thread that feeds the pipe."""
        report = replace(report_error(error, "", "fetch"), host=None)
        for host in self._hosts.values():
            host.give_up(report)

    def _end_of_start(self) -> float | None:
        """When to stop retrying unavailable storage: now, if the attempt has been stopped."""
        return time.monotonic() if self._cancelled else None

    @property
    def _cancelled(self) -> bool:
        return any(host.cancelled for host in self._hosts.values())

    def _check(self) -> None:
        if self._cancelled:
            raise _Cancelled

    # -- after the containers have ended

    def _save(self, failed: bool) -> FailureReport | None:
        warnings, report = save_outputs(
            self._folder,
            replace(self._settings, attempt=self._attempt),
            self.names,
            self._phases,
            failed=failed,
            is_complete=all(host.poll() == 0 for host in self._hosts.values()),
            flush=self._sync.flush if self._sync else list,
        )
        for warning in warnings:
            self._warn(warning)
        return report

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
