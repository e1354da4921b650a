"""The interface between the supervisor of a job and the job's hosts."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from cloudtrain._system.retries import again
from cloudtrain._system.safe_open import Beneath
from cloudtrain.contract import FailureReport, Host, Paths, encode_arguments
from cloudtrain.contract.documents import LARGEST_REPORT
from cloudtrain.contract.request_body import channel_documents, request_environment, request_settings
from cloudtrain.contract.settings import Settings
from cloudtrain.link.secret import fresh_secret
from cloudtrain.observe import EventLog
from cloudtrain.observe.events import SUPERVISOR
from cloudtrain.runtime.assignment import assign
from cloudtrain.runtime.job_secret import SECRET_FILE
from cloudtrain.runtime.outcome import SPARES
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.storage.disk_reserve import Reserve

LOOK_SECONDS = 0.1
"""Seconds between two looks of a supervisor into a folder on its own machine."""


class RunningHost(Protocol):
    """The runtime of one host."""

    def poll(self) -> int | None:
        """The exit code of the runtime, negative for a signal; None while it runs."""

    def send_signal(self, number: int) -> None:
        """Send a signal. Does nothing if the runtime has ended."""

    def abandon(self) -> None:
        """Kill only this runtime, which the other hosts have lost. It soon counts as ended, even without an answer."""

    def lost(self, name: str) -> FailureReport | None:
        """Why host ``name`` ended without a report; None if only its exit code is available."""


class Hosts(Protocol):
    """The hosts of one job."""

    everyone: Sequence[str]
    """All hosts, spare ones last. A scheduler chooses them when it starts the job."""
    names: Sequence[str]
    """The hosts with a place in this attempt, in rank order; the first one is the leader."""
    spares: Sequence[str]
    """The hosts that wait for a place."""
    waiting: Mapping[str, RunningHost]
    """The runtimes of the spare hosts in this attempt."""
    interface: str
    """The network interface over which the hosts reach each other."""
    end_seconds: float
    """How long the hosts may take to end after the grace of a stop. They end their ranks themselves."""
    look_seconds: float
    """Seconds between two looks of the supervisor into the job's folder, where it also shows that it is alive."""
    resources: str
    """The processors and the memory of each host, such as ``4 CPUs, 8 GB of memory``; empty if they are unknown."""
    upload: bool
    """Whether the runtimes upload the outputs. Otherwise, `finish` does, and their events of uploads are ignored."""
    restarts_here: bool
    """Whether another attempt on the same hosts follows this one if a rank is killed."""
    ran: float
    """Seconds for which the job ran before this attempt."""

    def assign(self, left_out: Sequence[str], dropped: Sequence[str]) -> None:
        """Assign every host its place in the next attempt: see `assign`."""

    @property
    def may_lose_some(self) -> bool:
        """Whether the job continues when a host is lost, with a spare host or with fewer hosts."""

    @property
    def free_spares(self) -> Sequence[str]:
        """The spare hosts that could take a place now."""

    @property
    def storage_environment(self) -> Mapping[str, str]:
        """The variables with which this machine reaches the storage as the runtimes do."""

    def prepare(self) -> None:
        """Create the folders and the configuration of every host, for a new attempt."""

    def rejoin(self, name: str) -> bool | None:
        """Let a host that was lost join this attempt as a spare host, if it can be reached.

        Returns whether it has joined; None if it was queried and has not answered yet. Does not wait.
        """

    def start(self, attempt: int, log: int) -> Mapping[str, RunningHost]:
        """Start the runtime of every host. Returns the runtimes by host name.

        Args:
            attempt: the number of earlier attempts.
            log: the descriptor of the job's log, to which the runtimes write their output.
        """

    def report(self, name: str) -> FailureReport | None:
        """The failure that the runtime of a host reported, of the host or of the job."""

    def finish(self, *, failed: bool) -> FailureReport | None:
        """Save the outputs of the hosts after all have ended, and remove everything but their folders.

        Returns the failure if the outputs cannot be saved, unless the attempt itself ``failed``.
        """


class FolderHosts:
    """The part of `Hosts` that is the same for all hosts that share the job's folder."""

    interface: str
    names: Sequence[str]
    spares: Sequence[str]
    look_seconds = LOOK_SECONDS
    resources = ""
    upload = True
    restarts_here = False
    ran = 0.0

    def __init__(self, folder: JobFolder, names: Sequence[str]) -> None:
        self._folder = folder
        self._request = folder.read_request()
        self._secret = ""
        """The job secret of this attempt. It is in no request, record or environment."""
        self.everyone: Sequence[str] = names
        self._wanted = self._places = len(names) - self._request.get("spare_hosts", 0)
        """How many places the job should have, and how many hosts of `everyone` have or had one."""
        self._dropped: Sequence[str] = ()
        self.waiting: Mapping[str, RunningHost] = {}
        self.assign((), ())
        self._events = EventLog(folder.events, SUPERVISOR)

    def _warn(self, message: str) -> None:
        """Add a warning to the events and to the log of the job."""
        with contextlib.suppress(OSError):  # a full disk
            self._events.emit("warning", message=message)
        with contextlib.suppress(OSError):
            self._folder.append_to_log(f"[cloudtrain] {message}\n")

    def assign(self, left_out: Sequence[str], dropped: Sequence[str]) -> None:
        self._dropped = dropped
        self.names, self.spares = assign(self.everyone, self._places, left_out, dropped)
        back = self.spares[: self._wanted - len(self.names)]
        if back:  # lost hosts that have rejoined a world that had shrunk
            self.names, self.spares = [*self.names, *back], self.spares[len(back) :]
            self._keep_places()

    def rejoin(self, name: str) -> bool | None:
        return False

    def _add_spare(self, name: str) -> None:
        """Make a host a spare host. The others keep their places."""
        if name not in self.spares:
            self.spares = [*self.spares, name]
            self._dropped = [one for one in self._dropped if one != name]
            self._keep_places()

    def _keep_places(self) -> None:
        """Make the current places the starting point of `assign`."""
        places = [*self.names, *(name for name in self._dropped if name not in self.names)]
        known = {*places, *self.spares}
        self._places = len(places)
        self.everyone = [*places, *self.spares, *(name for name in self.everyone if name not in known)]

    @property
    def may_lose_some(self) -> bool:
        return bool(self._request.get("spare_hosts") or self._request.get("min_instance_count"))

    @property
    def free_spares(self) -> Sequence[str]:
        return [name for name, runtime in self.waiting.items() if runtime.poll() is None]

    @property
    def storage_environment(self) -> Mapping[str, str]:
        return {**os.environ, **request_environment(self._request)}

    def _attempt_settings(self, attempt: int) -> Settings:
        """The settings of the request, with those of this attempt."""
        return replace(
            request_settings(self._request),
            attempt=attempt,
            ran=self.ran,
            run_id=self._folder.run_id,
            restarts_here=self.restarts_here,
        )

    def _with_places(self, runtimes: Mapping[str, RunningHost]) -> Mapping[str, RunningHost]:
        """The ``runtimes`` of hosts with a place. The others become `waiting`."""
        self.waiting = {name: runtimes[name] for name in self.spares if name in runtimes}
        return {name: runtimes[name] for name in self.names}

    def prepare(self) -> None:
        (self._folder.leader).unlink(missing_ok=True)
        self._secret = fresh_secret()
        groups = tuple(_groups_with_hosts(self._request.get("instance_groups", ()), self.names))
        for name in (*self.names, *self.spares):
            self._prepare_host(name, groups)

    def report(self, name: str) -> FailureReport | None:
        """The failure report. The script can write its file too, so invalid content counts as no report."""
        paths = self._folder.host(name)
        with contextlib.suppress(OSError, ValueError):
            return FailureReport.from_json(again(lambda: read_left(paths, paths.failure_report)))
        return None

    def _prepare_host(self, name: str, groups: Sequence[Mapping[str, Any]]) -> None:
        """Write the configuration of a host, and empty its folders for a new attempt.

        An earlier attempt may have left symbolic links there; nothing is written through them.
        """
        paths = self._folder.host(name)
        paths.base.mkdir(parents=True, exist_ok=True)
        own: Mapping[str, Any] = next((group for group in groups if name in group["hosts"]), {})
        kind = own.get("instance_type", self._request["instance_type"])
        group_name = own.get("instance_group_name")
        is_spare = name in self.spares
        names = (*self.names, name) if is_spare else tuple(self.names)
        host = Host(name, names, self.interface, kind, group_name, tuple(groups))
        arguments = encode_arguments(self._request.get("arguments", ()))
        documents = {
            "hyperparameters.json": {**self._request["hyperparameters"], **arguments},
            "resourceconfig.json": host.to_document(),
            "inputdataconfig.json": channel_documents(self._request),
        }
        with Beneath(paths.base) as base:
            for folder in (paths.model, paths.output, paths.code):
                with contextlib.suppress(OSError):
                    base.remove(paths.key(folder))
            for folder in paths.folders:
                base.make_folder(paths.key(folder))
            for file, content in documents.items():
                base.write(paths.key(paths.input_config / file), json.dumps(content).encode())
            if len(names) > 1 and not is_spare and self._request.get("runtime", "cloudtrain") == "cloudtrain":
                base.write(paths.key(paths.input_config / SECRET_FILE), self._secret.encode(), mode=0o600)
        Reserve(paths.output, SPARES).keep()


def read_left(paths: Paths, path: Path) -> bytes:
    """The beginning of a file that a host left. Raises OSError, also if it is not a regular file."""
    with Beneath(paths.base) as base:
        return base.read(paths.key(path), LARGEST_REPORT)


def numbered_names(count: int) -> list[str]:
    """Host names as on SageMaker: ``algo-1``, ``algo-2``, ..."""
    return [f"algo-{number + 1}" for number in range(count)]


def _groups_with_hosts(groups: Iterable[Mapping[str, Any]], hosts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The instance groups as in ``resourceconfig.json``. Each group takes the next hosts in order."""
    rest = iter(hosts)
    for group in groups:
        yield {
            "instance_group_name": group["instance_group_name"],
            "instance_type": group["instance_type"],
            "hosts": list(islice(rest, group["instance_count"])),
        }
