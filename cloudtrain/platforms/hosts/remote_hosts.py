"""The hosts of a job, some of which are reached through ssh. The others are processes on this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cloudtrain._system.interfaces import interface_to
from cloudtrain._system.owned import own_folder
from cloudtrain._system.sockets import LOOPBACK
from cloudtrain.contract import FailureReport, Settings
from cloudtrain.contract.request_body import request_environment, request_settings
from cloudtrain.packaging.zipapp import RuntimeArchive, pack_runtime
from cloudtrain.platforms.common.bundled_runtime import SOURCE_CHANNEL
from cloudtrain.platforms.hosts.connection import Problem
from cloudtrain.platforms.hosts.host_list import NamedHost
from cloudtrain.platforms.hosts.probe import Answers, Question, ask, question_of, safe_folder, with_token
from cloudtrain.platforms.hosts.remote_host import RefusedHost, RemoteHost
from cloudtrain.platforms.hosts.returning import ReturningHost
from cloudtrain.platforms.hosts.transfer import (
    CHECKPOINTS,
    Arrivals,
    fetch_archive,
    plan_inputs,
    send_runtime,
)
from cloudtrain.platforms.local.supervisor import HostProcesses
from cloudtrain.platforms.supervised.pending_upload import save_outputs
from cloudtrain.runtime.phases import Phases
from cloudtrain.runtime.start.messages import Folder, NodeJob
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import RunningHost
from cloudtrain.storage import state_home, uri_to_path
from cloudtrain.storage.atomic import replace_file

NO_OPT_ML = "a host that is reached through ssh runs the job in another folder"
IN_BASE = ("CLOUDTRAIN_CHANNELS", "CLOUDTRAIN_CHECKPOINT_URI")
"""The variables that may name files of a host's own folder."""


class ListedHosts(HostProcesses):
    """The hosts of one job. They send their outputs back, and this process uploads them."""

    def __init__(self, folder: JobFolder, lock: int) -> None:
        self._all = question_of(folder.read_request())
        self._question = self._all
        """The question to the hosts of this attempt, in the order of their places."""
        hosts = self._all.hosts
        super().__init__(folder, lock, [host.name for host in hosts])
        self._here = [host.name for host in hosts if host not in self._all.remote]
        self._found = Answers()
        self._running: dict[str, RemoteHost] = {}
        self._returning: dict[str, ReturningHost] = {}
        self._leader = ""
        """The address of the leader in this attempt, once the other hosts have it."""
        self._runtime: RuntimeArchive | None = None
        self._attempt = 0
        self.upload = False
        self._forks = False  # unsafe with threads

    def assign(self, left_out: Sequence[str], dropped: Sequence[str]) -> None:
        super().assign(left_out, dropped)
        named = {host.name: host for host in self._all.hosts}
        leader = "" if self.names[0] == "localhost" else self.names[0]
        self._question = replace(
            self._all,
            hosts=[named[name] for name in (*self.names, *self.spares)],
            spares=self.spares,
            inquiry=replace(self._all.inquiry, leader=leader),
        )

    def prepare(self) -> None:
        if self._question.inquiry.folder:
            with safe_folder():
                own_folder(f"{self._question.inquiry.folder}/{self._folder.name}", create=True)
        self._connect()
        super().prepare()

    def start(self, attempt: int, log: int) -> Mapping[str, RunningHost]:
        refused = {name: RefusedHost(problem) for name, problem in self._found.problems.items()}
        if any(name in refused for name in self.names):
            self.waiting = {}
            return {name: refused[name] for name in self.names if name in refused}
        self._attempt = attempt
        runtimes: dict[str, RunningHost] = {**refused, **self._start_here(attempt, log)}
        for host in self._question.remote:
            if host.name not in refused:
                runtimes[host.name] = self._running[host.name] = self._start_remote(host, attempt, log)
        return self._with_places(runtimes)

    @property
    def free_spares(self) -> Sequence[str]:
        if self.waiting:
            return super().free_spares
        return [name for name in self.spares if name not in self._found.problems]

    def rejoin(self, name: str) -> bool | None:
        [host] = [one for one in self._all.hosts if one.name == name]
        if host.is_this_machine:
            return False
        asked = self._returning.get(name)
        if asked is None:
            self._returning[name] = ReturningHost(host, self._asking())
            return None
        if not asked.has_answered:
            return None
        del self._returning[name]
        if not asked.join(self._found):
            return False
        self._add_spare(name)
        try:
            self._prepare_host(name, ())
            with self._folder.open_log() as log:
                self._running[name] = self._start_remote(host, self._attempt, log.fileno())
        except OSError as error:  # a full disk
            self._found.connections[name].close()
            self._found.problems[name] = Problem(f"{name}: {error.strerror or error}")
            self.waiting = {**self.waiting, name: RefusedHost(self._found.problems[name])}
        else:
            self.waiting = {**self.waiting, name: self._running[name]}
        return True

    def finish(self, *, failed: bool) -> FailureReport | None:
        for asked in self._returning.values():
            asked.close()
        self._returning = {}
        self._found.close()  # all have ended, unless this process has failed
        for host in self._running.values():
            host.join()
        super().finish(failed=failed)
        ran, self._running = bool(self._running), {}
        return self._save(failed) if ran else None

    def settings(self, attempt: int) -> Settings:
        return replace(
            super().settings(attempt), output_uri="", master_addr=self._found.address or "127.0.0.1"
        )

    # -- starts

    def _connect(self) -> None:
        """Query all hosts, once for each attempt, and choose the leader's address."""
        self._leader = ""
        with with_token(self._asking()) as question:
            self._found = ask(question)
        for problem in self._found.warnings():
            self._warn(f"{problem.what}. {problem.hint}")
        self.interface = (interface_to(self._found.address) if self._found.address else "") or LOOPBACK

    def _asking(self) -> Question:
        """The question of this attempt, with the runtime that hosts need."""
        self._runtime = self._runtime or pack_runtime(state_home() / "runtime")
        return replace(self._question, inquiry=replace(self._question.inquiry, runtime=self._runtime.sha256))

    def _start_remote(self, host: NamedHost, attempt: int, log: int) -> RemoteHost:
        connection, facts = self._found.connections[host.name], self._found.facts[host.name]
        assert self._runtime
        if not facts.has_runtime:
            send_runtime(connection, self._runtime.path)
        paths, leads = self._folder.host(host.name), host.name == self.names[0]
        is_spare = host.name in self.spares
        settings = replace(self._attempt_settings(attempt), spare=is_spare)
        folder = self._question.inquiry.folder
        inputs = plan_inputs(settings, facts, folder, self._archive())
        checkpoints = uri_to_path(settings.checkpoint_uri) if inputs.sends_checkpoints and leads else None
        running = RemoteHost(
            connection,
            paths,
            Arrivals(paths, checkpoints),
            on_leader=self._take_leader if leads else lambda _address: None,
            on_poll=self._pass_on_leader,
            warn=self._warn,
        )
        documents = {f"input/config/{path.name}": path for path in paths.input_config.iterdir()}
        own = replace(
            settings,
            output_uri="",
            channels=inputs.channels,
            checkpoint_uri=inputs.checkpoint_uri,
            source_channel=SOURCE_CHANNEL,
            master_addr=self._found.address or "127.0.0.1",
            no_opt_ml=NO_OPT_ML,
            restarts_here=False,  # its folder is removed after each attempt, with the path of the memory
        ).to_environ()
        job = NodeJob(
            names=[*self.names, *self.spares],
            environment=dict(request_environment(self._request)),
            settings={**own, "CLOUDTRAIN_ATTEMPT": str(attempt)},
            interface="auto" if self._found.address else LOOPBACK,
            address=self._found.address,
            in_base=[name for name in IN_BASE if name in own],
            outputs=[] if is_spare else ["model", "output/data", *([CHECKPOINTS] if checkpoints else [])],
        )
        place = Folder(
            f"hosts-{self._folder.run_id}-{attempt}/{host.name}",
            f"{folder}/{self._folder.name}" if folder else "",
        )
        running.run({**documents, **inputs.send}, place, job, os.dup(log))
        return running

    def _archive(self) -> Path | None:
        uri = self._request["hyperparameters"].get("sagemaker_submit_directory", "").strip('"')
        return fetch_archive(uri, self._folder.path) if uri else None

    def _take_leader(self, address: str) -> None:
        replace_file(self._folder.leader, address.encode(), mode=0o600)

    def _pass_on_leader(self) -> None:
        """Send the leader's address to the other hosts as soon as it is known."""
        if self._leader:
            return
        with contextlib.suppress(OSError):
            self._leader = self._folder.leader.read_text()
            for name, host in self._running.items():
                if name != self.names[0]:
                    host.send_leader(self._leader)

    # -- after all have ended

    def _save(self, failed: bool) -> FailureReport | None:
        settings = replace(request_settings(self._request), attempt=self._attempt)
        phases = Phases(self._events)
        warnings, report = save_outputs(self._folder, settings, self.names, phases, failed=failed)
        for warning in warnings:
            self._warn(warning)
        return report
