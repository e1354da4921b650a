"""The hosts of a job, as its supervisor needs them."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from cloudtrain.contract import FailureReport, Host
from cloudtrain.platforms.common.request_body import channel_documents
from cloudtrain.platforms.supervised.folder import JobFolder


class RunningHost(Protocol):
    """The runtime of one host, from its start on."""

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        ...

    def send_signal(self, number: int) -> None:
        """Does nothing if it has ended."""
        ...

    def lost(self, name: str) -> FailureReport:
        """The report of host ``name``, which has ended and left none itself."""
        ...


class Hosts(Protocol):
    """Where the runtimes of one job run."""

    names: Sequence[str]
    """In the order of their ranks; the first one leads. A scheduler's are known once it has started the job."""
    interface: str
    """The network interface by which they reach each other."""
    end_seconds: float
    """How long they may take to end, once the grace of a stop is over: they end their ranks themselves."""

    def prepare(self) -> None:
        """Make the folders and the configuration of every host, for a new attempt."""
        ...

    def start(self, attempt: int, log: int) -> Mapping[str, RunningHost]:
        """Start the runtime of every host; by the host's name.

        Args:
            attempt: how often the job was started before.
            log: the descriptor of the job's log, which takes what they print.
        """
        ...

    def report(self, name: str) -> FailureReport | None:
        """The failure that the runtime of a host has reported, its own or the job's."""
        ...

    def finish(self, *, failed: bool) -> FailureReport | None:
        """All hosts of an attempt have ended: save what they have left, and leave nothing of them but folders.

        Returns what went wrong with that, after an attempt that has not ``failed``.
        """
        ...


class FolderHosts:
    """The part of `Hosts` that is the same for all hosts that share the job's folder."""

    interface: str

    def __init__(self, folder: JobFolder, names: Sequence[str]) -> None:
        self._folder = folder
        self._request = folder.read_request()
        self.names = names

    def prepare(self) -> None:
        (self._folder.leader).unlink(missing_ok=True)
        groups = tuple(_groups_with_hosts(self._request.get("instance_groups", ()), self.names))
        for name in self.names:
            self._prepare_host(name, groups)

    def report(self, name: str) -> FailureReport | None:
        with contextlib.suppress(FileNotFoundError):
            return FailureReport.from_json(self._folder.host(name).failure_report.read_bytes())
        return None

    def _prepare_host(self, name: str, groups: Sequence[Mapping[str, Any]]) -> None:
        """Write what the platform owes a container: its configuration, and empty folders for a new attempt."""
        paths = self._folder.host(name)
        for folder in (paths.model, paths.output, paths.code):
            shutil.rmtree(folder, ignore_errors=True)
        paths.make()
        own: Mapping[str, Any] = next((group for group in groups if name in group["hosts"]), {})
        kind = own.get("instance_type", self._request["instance_type"])
        group_name = own.get("instance_group_name")
        host = Host(name, tuple(self.names), self.interface, kind, group_name, tuple(groups))
        documents = {
            "hyperparameters.json": self._request["hyperparameters"],
            "resourceconfig.json": host.to_document(),
            "inputdataconfig.json": channel_documents(self._request),
        }
        for file, content in documents.items():
            (paths.input_config / file).write_text(json.dumps(content), encoding="utf-8")


def numbered_names(count: int) -> list[str]:
    """Names for hosts that have none, as on SageMaker: ``algo-1``, ``algo-2``, ..."""
    return [f"algo-{number + 1}" for number in range(count)]


def _groups_with_hosts(groups: Iterable[Mapping[str, Any]], hosts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The instance groups as in ``resourceconfig.json``: each has the next hosts."""
    rest = iter(hosts)
    for group in groups:
        yield {
            "instance_group_name": group["instance_group_name"],
            "instance_type": group["instance_type"],
            "hosts": list(islice(rest, group["instance_count"])),
        }
