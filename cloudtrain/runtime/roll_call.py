"""Assigns the hosts of a job their places before each attempt, if the job has no supervisor, as in pods.

A job has ``spare_hosts`` more hosts than places. The first host leads every attempt, and calls the roll: the others
connect to the port after the leader's, and wait for the list of hosts with a place. It is complete when all hosts
except the spare ones have connected, or some time after enough spare hosts have to take the places of the missing.

A host without a place prepares itself, and stays connected until it is informed that the job has completed. If the
connection ends earlier, the attempt has ended, and the host answers the next call. If there is no call, the host leaves
its machine, because the leader may have lost its own, and wait for a free one.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable

from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.link.secret import derive
from cloudtrain.observe import EventLog, steady
from cloudtrain.observe.events import PLACES
from cloudtrain.runtime.assignment import assign, taken_places
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.leader import BEAT_SECONDS
from cloudtrain.runtime.leader_client import Inbox, JoinInterrupted, LeaderClient, LeaderNotFound, listen
from cloudtrain.runtime.leader_links import LeaderLinks, Message, Waiting
from cloudtrain.runtime.outcome import HostOutcome
from cloudtrain.runtime.output import say
from cloudtrain.storage.atomic import replace_file

STEP_ASIDE_SECONDS = 120.0
"""How long a spare host waits for the next call after the end of an attempt. The first one may take `join_timeout`."""
OVER_SECONDS = 10.0
"""How long the leader waits for hosts without a place to disconnect after the job has completed."""
POLL_SECONDS = 0.1


class RollCall:
    """The leader's side. Runs in a thread for the whole attempt, because hosts that connect late wait without a place.

    Args:
        rendezvous: ``host:port`` of the call.
        hosts: the names of all hosts, the spare ones last.
        places: the number of hosts with a place.
        keys: see `LeaderLinks`.
        patience: how long a missing host may take to connect once a spare host could take its place.
        on_change: called with a text about the spare hosts: which ones wait, and which places they have taken.
    """

    def __init__(
        self,
        rendezvous: str,
        hosts: Sequence[str],
        places: int,
        keys: Mapping[str, bytes],
        host_timeout: float,
        patience: float,
        on_change: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hosts, self._count, self._patience, self._clock = hosts, places, patience, clock
        self._on_change, self._shown = on_change, "?"
        self._links = LeaderLinks(listen(rendezvous, ""), hosts, hosts, keys, host_timeout, restarts=True)
        self._enough_since: float | None = None
        self._next_beat = 0.0
        self._answer: Message = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roll-call", daemon=True)
        self.present: frozenset[str] = frozenset(hosts[:1])
        self.problem = ""
        """The unexpected error that has ended the call, such as too many open files."""
        self._thread.start()

    @property
    def places(self) -> tuple[str, ...]:
        """The hosts that have a place, in rank order; empty until this is decided."""
        return tuple(self._answer.get("hosts", ()))

    @property
    def missing(self) -> list[str]:
        """The hosts that have not connected although they should have a place."""
        return [name for name in self._hosts[: self._count] if name not in self.present]

    @property
    def waits_for_missing(self) -> bool:
        """Whether spare hosts can take the places of missing hosts, which have some more time to connect."""
        return self._enough_since is not None

    def complete(self) -> None:
        """Let the hosts without a place end, because the job has completed."""
        self._answer = {"type": "over"}
        self._is_over.set()
        self._thread.join(OVER_SECONDS)

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            self.problem = repr(error)
        finally:
            self._links.close()

    def _serve(self) -> None:
        while not self._is_over.is_set():
            self._poll()
        self._links.broadcast(self._answer)
        deadline = self._clock() + OVER_SECONDS
        while self._links.joined and self._clock() < deadline:
            self._poll()

    def _poll(self) -> None:
        for link, message in self._links.poll(POLL_SECONDS):
            if message["type"] == "gone":
                self._links.readmit(link)
            elif message["type"] == "join" and self._answer:
                link.send(self._answer)
        now = self._clock()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._links.beat()
        if not self._answer:
            self._judge(now)
        elif not self._is_over.is_set() and (text := self._describe()) != self._shown:
            self._shown = text
            self._on_change(text)

    def _describe(self) -> str:
        waiting = [name for name in self._hosts if name in self._links.joined and name not in self.places]
        waits = [f"{', '.join(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"] if waiting else []
        return "; ".join([*taken_places(self._hosts, self.places), *waits])

    def _judge(self, now: float) -> None:
        self.present = frozenset((self._hosts[0], *self._links.joined))
        absent = [name for name in self._hosts if name not in self.present]
        names, _ = assign(self._hosts, self._count, absent)
        if not self.present.issuperset(names):
            self._enough_since = None
            return
        if self._enough_since is None:
            self._enough_since = now
        if not self.missing or now - self._enough_since > self._patience:
            self._answer = {"type": "places", "hosts": names}
            self._links.broadcast(self._answer)


class Caller:
    """The side of every host, which calls `find` to get its place.

    Args:
        inbox: the inbox for the signals of this host. Until `find` returns, it receives nothing else.
    """

    def __init__(
        self,
        config: HostConfig,
        environ: Mapping[str, str],
        inbox: Inbox,
        secret: str,
        events: EventLog,
    ) -> None:
        settings = config.settings
        self._config, self._environ, self._inbox, self._events = config, environ, inbox, events
        name, _, port = settings.rendezvous.rpartition(":")
        self._address = f"{name}:{int(port) + 1}"
        self._keys = {name: derive(secret, name) for name in ("spawn", "tls")}
        self._keys["control"] = derive(secret, "places")
        self._preparation: threading.Thread | None = None
        self._kept: list[Message] = []
        self._call: RollCall | None = None
        """The roll call; only on the leader."""

    def find(self) -> HostOutcome | HostConfig:
        """The configuration of this host among those with a place, or the outcome if the host has ended without one.

        Raises PlatformError if the leader cannot listen, or has another job secret.
        """
        found = self._lead() if self._config.host.leads else self._answer()
        if isinstance(found, HostOutcome):
            return found
        for message in self._kept:
            self._inbox.put(message)
        config = self._config.with_hosts(found)
        document = json.dumps(config.host.to_document(), indent=2)  # scripts read it too
        replace_file(config.paths.input_config / "resourceconfig.json", document.encode())
        return config

    def end(self, outcome: HostOutcome) -> None:
        """End the call if the job has completed. Call this when the attempt has ended on this host."""
        if self._call and outcome.status == JobStatus.COMPLETED:
            self._call.complete()

    def _lead(self) -> HostOutcome | tuple[str, ...]:
        config, settings = self._config, self._config.settings
        hosts, seconds = config.host.hosts, settings.join_timeout
        count = len(hosts) - settings.spare_hosts
        patience = settings.host_timeout
        self._call = call = RollCall(
            self._address, hosts, count, self._keys, settings.host_timeout, patience, self._show
        )
        waiting, deadline = Waiting(seconds), time.monotonic() + seconds
        while not call.places:
            if outcome := self._ended(POLL_SECONDS):
                return outcome
            if call.problem:
                raise PlatformError(
                    f"the leader cannot give the hosts their places: {call.problem}",
                    hint="The other hosts wait for the next attempt. Report an error that comes back.",
                )
            missing = ", ".join(call.missing)
            waiting.report(missing)
            if time.monotonic() > deadline and missing and not call.waits_for_missing:
                why = f"it never joined the job within {seconds:g} s, nor did a spare host in its place"
                return HostOutcome(
                    JobStatus.FAILED, FailureReport.host_lost(call.missing[0], why, steady.now())
                )
        for line in taken_places(hosts, call.places):
            say(line)
        return call.places

    def _show(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk
            self._events.emit(PLACES, text=text)

    def _answer(self) -> HostOutcome | tuple[str, ...]:
        """Answer calls until one gives this host a place."""
        config, settings = self._config, self._config.settings
        name, seconds = config.host.current, settings.join_timeout
        while True:
            try:
                client = LeaderClient.join(
                    name,
                    self._address,
                    self._keys,
                    self._inbox,
                    seconds,
                    settings.host_timeout,
                    restarts=True,
                )
            except JoinInterrupted:
                if outcome := self._ended(0):
                    return outcome
                continue
            except LeaderNotFound as error:
                report = FailureReport.host_lost(config.host.leader, error.message, steady.now())
                # the leader may need this machine
                return HostOutcome(JobStatus.FAILED, report, leaves_machine=self._preparation is not None)
            found = self._listen(client)
            if found:
                return found
            if self._preparation:
                seconds = min(STEP_ASIDE_SECONDS, settings.join_timeout)

    def _listen(self, client: LeaderClient) -> HostOutcome | tuple[str, ...] | None:
        """Wait for the place of this host, or for its outcome. Returns None if the leader is lost."""
        name = self._config.host.current
        found: HostOutcome | tuple[str, ...] | None = None
        while found is None:
            message = self._inbox.get()
            kind = message["type"]
            if kind == "lost":
                return None
            if kind == "over":  # counts regardless of other messages on this host
                client.close()
                return HostOutcome(JobStatus.COMPLETED)
            if kind != "places":
                found = self._outcome_of(message)
            elif name in message["hosts"]:
                found = tuple(message["hosts"])
            else:
                from cloudtrain.runtime.checkpoint_memory import remove_memory
                from cloudtrain.runtime.spare import prepare

                remove_memory(
                    self._config.paths
                )  # pods count no attempts, so a later attempt would use the copies as if they were of the last one
                self._preparation = self._preparation or prepare(self._config, self._environ, self._inbox)
        client.close()
        while self._preparation and self._preparation.is_alive() and isinstance(found, tuple):
            found = self._ended(POLL_SECONDS) or found
        return self._ended(0) or found  # also empties the inbox of the client's messages

    def _ended(self, seconds: float) -> HostOutcome | None:
        """The outcome of this host if a message that ends it arrives within ``seconds``."""
        for message in self._messages(seconds):
            if outcome := self._outcome_of(message):
                return outcome
        return None

    def _messages(self, seconds: float) -> Iterator[Message]:
        try:
            yield self._inbox.get(timeout=seconds) if seconds else self._inbox.get_nowait()
            while True:
                yield self._inbox.get_nowait()
        except queue.Empty:
            return

    def _outcome_of(self, message: Message) -> HostOutcome | None:
        """The outcome that a message causes, if any. Notices are kept for the ranks; other messages are dropped."""
        kind = message["type"]
        if kind in ("signal", "orphaned"):
            return HostOutcome(JobStatus.INTERRUPTED)
        if kind == "failed":  # not a failure of the job, which may continue without this host
            return HostOutcome(JobStatus.FAILED, message["report"], is_decided=True)
        if kind == "noticed" and message not in self._kept:
            self._kept.append(message)
        return None
