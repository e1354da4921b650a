"""The leader of a job: it tracks every host and decides for all of them.

Hosts, including the leader's own, connect over TCP, prove that they belong to the job, and exchange JSON messages,
each with a ``type``:

    from a host   join, ready, ended, done, files, listed, digests, shared, uploaded, failed, stopping, noticed,
                  leaving, left, chief-ended, inspect, positions, silent, stacks,
                  saving, lines, beat
    to the hosts  joined, refused, start, finish, share, assemble, complete, abort, stop, notice, leave, end-workers,
                  dump, taken, beat, spawn
    spawn         comes from mpirun's remote shell on the leader and is forwarded to the host that it names

    join ─ ready ──(all)── start ─ done ──(all)── finish ─ listed ──(all)── share ─ shared ──(all)── assemble
                                                         ─ uploaded ──(all)── complete
                 any failed ── abort, with the report of the cause ─ saving
                 any stopping ── stop

A single host uploads without ``listed`` and ``shared``. ``files`` and ``digests`` describe the outputs of a
host, so that the leader can merge them. ``ended`` names ranks that have ended with exit code 0. ``complete`` is sent
after every host has uploaded. If one host fails, none succeeds. A host that is ``saving`` uploads its last checkpoints
after a failure. The leader runs until that host has disconnected or is lost. ``inspect`` requests the stacks of all
ranks: every host gets ``dump`` and answers with ``stacks``.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Callable

from cloudtrain.contract import FailureClass, FailureReport, Settings
from cloudtrain.contract.documents import LARGEST_REPORT, Fields
from cloudtrain.contract.failure import FINAL_CODE
from cloudtrain.contract.settings import NOTIFY_ON_HANG, STOP_ON_HANG
from cloudtrain.observe import EventLog, steady
from cloudtrain.observe.events import Event, to_line
from cloudtrain.observe.hanging import HANGING, SCRIPT, Hanging
from cloudtrain.runtime.diagnose.collectives import with_records
from cloudtrain.runtime.diagnose.first_cause import SETTLE_SECONDS, Failures
from cloudtrain.runtime.diagnose.hangs import HINT, Hang, cause_first, places_in
from cloudtrain.runtime.diagnose.silence import JobWatch, Silence
from cloudtrain.runtime.launchers.gpu_environment import differing_gpus
from cloudtrain.runtime.leader_links import HostLink, LeaderLinks, Message, Say, Waiting
from cloudtrain.runtime.output import say
from cloudtrain.runtime.outputs.merge import MODEL, Merge, differing_message, stray_message, to_ranges
from cloudtrain.runtime.stack_collector import SILENT, Places, StackCollector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.runtime.forwarding import ForwardedOutput
    from cloudtrain.runtime.limits import Limits

BEAT_SECONDS = 2.0
STACKS_SECONDS = 5.0
"""How long failures are collected if ranks hang, while all hosts send the stacks of their ranks."""
LATE_SECONDS = 30.0
"""How long the leader of a failed job waits for hosts that have not joined, to inform them."""
DISCONNECT_SECONDS = 15.0
"""The least time in seconds that the leader waits for hosts to disconnect after its final message. A host that is cut
off from the network has its ``host_timeout`` to reconnect and receive the message."""


class Leader:
    """Runs in a thread of the leader's runtime until every host has disconnected.

    Args:
        listener: a bound, listening socket; the leader closes it.
        hosts: the names of all hosts.
        keys: see `LeaderLinks`.
        ranked: the hosts whose ranks form one world, starting with the host of rank 0. Default: all.
        master: the address and port of rank 0.
        join_timeout: the seconds within which all hosts must join.
        host_timeout: the seconds without a message after which a host is lost.
        restarts: see `LeaderLinks`.
        output: prints what the other hosts print.
        limits: the limits at which the job is ended.
        hang_after, on_hang: see `Settings`.
        notify_hang: called with each hang that does not end the job.
        events: the events of the leader's host, for the stacks of all ranks.
        say: prints a line to the log of the job.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        listener: socket.socket,
        hosts: tuple[str, ...],
        keys: Mapping[str, bytes],
        *,
        ranked: tuple[str, ...] = (),
        master: tuple[str, int],
        join_timeout: float,
        host_timeout: float = Settings.host_timeout,
        restarts: bool = False,
        output: ForwardedOutput | None = None,
        limits: Limits | None = None,
        hang_after: float = 0.0,
        on_hang: str = NOTIFY_ON_HANG,
        notify_hang: Callable[[Hanging], object] | None = None,
        events: EventLog,
        say: Say = say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._links = LeaderLinks(listener, hosts, ranked or hosts, keys, host_timeout, restarts=restarts)
        self._clock = clock
        self._restarts = restarts
        self._output = output
        self._limits = limits
        self._stop: Message = {"type": "stop"}
        self._hosts = hosts
        self._ranked = ranked or hosts
        self._start: Message = {"type": "start", "master_addr": master[0], "master_port": master[1]}
        self._start["generation"] = os.urandom(16).hex()
        self._join_timeout = join_timeout
        self._join_by = self._clock() + join_timeout
        self._waiting = Waiting(join_timeout, say)
        self._expected = set(hosts)
        """The hosts that have not joined."""
        self._failures = Failures(clock)
        self._stacks: dict[str, str] = {}
        """The stacks of ranks that hang, by host."""
        self._collector = StackCollector(hosts, events, clock, self._judge_silence)
        self._hang = Hang()
        self._watch = JobWatch(ranked or hosts, hang_after)
        self._on_hang, self._notify_hang = on_hang, notify_hang
        self._ends_hang = False
        """Whether the detected hang has to end this attempt."""
        self._events, self._say = events, say
        self._next_beat = 0.0
        self._decision = ""
        self._started = False
        self._reached: set[str] = set()
        """The states after ``ready`` that all hosts have reached."""
        self._completed = True
        """Whether all ranks that have ended so far exited with 0, even if a stop was in progress."""
        self._ended: list[int] = []
        """The ranks that have ended with exit code 0."""
        self._merge = Merge(hosts)
        self._gpus: dict[str, tuple[int, int]] = {}
        """The numbers of GPUs and ranks of each host whose ranks form one world."""
        self._strays: dict[str, list[str]] = {}
        """Models outside of the model folder, by host."""
        self._leaving = False
        """Whether a rank exits because of a preemption. If so, failures of other ranks are consequences."""
        self._end_by: float | None = None
        self._saving = False
        """Whether a host uploads its last checkpoints after a failure."""
        self._abortion: Message | None = None
        self._end_seconds = max(DISCONNECT_SECONDS, host_timeout)
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, is_interrupted: Callable[[], bool] = bool) -> None:
        """Wait until every host has disconnected or ``is_interrupted()``. Bounded, unless a host is saving."""
        end = self._clock() + max(LATE_SECONDS, self._end_seconds) + 1
        while self._thread.is_alive() and (self._clock() < end or self._saving) and not is_interrupted():
            self._thread.join(0.1)

    @property
    def refused(self) -> int:
        """The number of connections that did not prove that they belong to the job."""
        return self._links.refused

    def _run(self) -> None:
        try:
            while not self._is_over():
                for link, message in self._links.poll(0.1):
                    try:
                        self._handle(link, message)
                    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
                        self._links.lose(link, f"its runtime sent an invalid message: {error!r}")
                self._tick(self._clock())
            self._collector.finish()
        finally:  # after an unexpected error too: otherwise, the hosts would wait for their timeout
            self._links.close()
        self._collector.wait()

    def _is_over(self) -> bool:
        if self._end_by is None:
            return False
        late = self._abortion and self._expected and not self._restarts
        self._saving = any(link.state == "saving" for link in self._links.joined.values())
        return not (self._links.joined or late) or (self._clock() > self._end_by and not self._saving)

    def _handle(self, link: HostLink, message: Message) -> None:
        handler = _HANDLERS.get(message["type"])
        if handler:
            handler(self, link, message)

    def _on_join(self, link: HostLink, _message: Message) -> None:
        self._expected.discard(link.host)
        if self._decision == "stop":
            link.send(self._stop)
        elif self._abortion:
            link.send(self._abortion)

    def _on_gone(self, link: HostLink, message: Message) -> None:
        if self._end_by is None and not (self._decision == "stop" and not self._started):
            self._report_lost(link.host, message["why"])

    def _on_ready(self, link: HostLink, message: Message) -> None:
        self._on_state(link, message)
        if link.host == self._ranked[0]:  # the host of rank 0 decides for all
            self._start.update({name: message.get(name) for name in ("horovod", "ports")})
        if link.host in self._ranked and "tasks" in message:
            self._start.setdefault("tasks", {})[link.host] = message["tasks"]
        if "copies" in message:
            self._start.setdefault("copies", {})[link.host] = message["copies"]
        if link.host in self._ranked and "gpus" in message:
            self._gpus[link.host] = (int(message["gpus"]), int(message["ranks"]))

    def _on_state(self, link: HostLink, message: Message) -> None:
        link.state = message["type"]
        self._completed &= message.get("completed", True)
        self._strays.setdefault(link.host, []).extend(Fields(message).texts("strays", ()))

    def _on_ended(self, _link: HostLink, message: Message) -> None:
        self._ended += [int(rank) for rank in Fields(message).items("ranks")]

    def _on_files(self, link: HostLink, message: Message) -> None:
        self._merge.add_files(link.host, message["files"])

    def _on_digests(self, link: HostLink, message: Message) -> None:
        self._merge.add_digests(link.host, message["digests"])

    def _on_failed(self, _link: HostLink, message: Message) -> None:
        if self._leaving:
            return
        # on the leader's clock, because the hosts' clocks may differ, and the earliest failure is the cause
        happened = steady.now() - float(message.get("ago", 0.0))
        report = FailureReport.from_dict({**message["report"], "time": happened})
        hangs = report.failure_class == FailureClass.HANG and not self._failures.reports
        if hangs:
            self._broadcast(self._collector.request_for_hang())
        self._fail(report, STACKS_SECONDS if hangs else SETTLE_SECONDS)

    def _on_lines(self, link: HostLink, message: Message) -> None:
        if self._output:
            self._output.put(link.host, Fields(message).text("text"))

    def _on_inspect(self, _link: HostLink, message: Message) -> None:
        if self._end_by is None and not self._failures.are_settling:
            fields = Fields(message)
            self._send_to_all(
                self._collector.request(native=fields.boolean("native"), why=fields.text("why", ""))
            )

    def _on_stacks(self, link: HostLink, message: Message) -> None:
        self._collector.add(link.host, message)
        if "text" in message:
            self._stacks[link.host] = Fields(message).text("text")

    def _on_positions(self, link: HostLink, message: Message) -> None:
        self._hang.add(link.host, message["ranks"])

    def _on_silent(self, link: HostLink, message: Message) -> None:
        self._watch.add(link.host, self._clock(), Silence.of(message))
        sign = self._watch.sign
        if sign:
            self._watch.hanging = None
            self._say(f"the job no longer hangs: {sign}")
            self._collector.write(to_line(self._events.record(HANGING, state="ended", sign=sign)))

    def _look_for_hang(self, now: float) -> None:
        """Take the stacks of all ranks if none of them shows a sign of life."""
        if self._decision == "start" and self._watch.is_due(now):
            request = self._collector.request(why=SILENT)
            if request is None:
                self._watch.forget_look()
            self._send_to_all(request)

    def _judge_silence(self, places: Places) -> list[Event]:
        """The event about a job that hangs. If the hang ends the attempt, the failure follows."""
        if self._end_by is not None or self._failures.are_settling:
            return []
        found = self._watch.judge(places, self._ended)
        if found is None:
            return []
        self._say(str(found))
        if self._on_hang != NOTIFY_ON_HANG and found.cause == SCRIPT:
            self._ends_hang = True
        elif self._notify_hang:
            self._notify_hang(found)
        return [self._events.record(HANGING, state="began", **found.to_event())]

    def _end_hang(self, found: Hanging) -> None:
        """Fail because of a hang, with a report that contains the stacks of all threads."""
        self._ends_hang = False
        is_final = self._restarts and self._on_hang == STOP_ON_HANG
        report = FailureReport(
            FailureClass.HANG,
            str(found),
            HINT,
            rank=found.rank if found.count == 1 else None,
            host=found.host if found.count == 1 else None,
            exit_code=FINAL_CODE if is_final else 1,
            phase="train",
            time=steady.now(),
        )
        self._broadcast(self._collector.request_for_hang())
        self._fail(report, STACKS_SECONDS)

    def _on_noticed(self, _link: HostLink, message: Message) -> None:
        fields = Fields(message)
        deadline, reason = fields.time("deadline"), fields.text("reason")
        self._broadcast({"type": "notice", "deadline": deadline, "reason": reason})

    def _on_stopping(self, _link: HostLink, _message: Message) -> None:
        self._decide(self._stop)

    def _on_leaving(self, _link: HostLink, _message: Message) -> None:
        self._leaving = True
        self._failures.excuse()
        self._decide(self._stop)

    def _on_left(self, _link: HostLink, _message: Message) -> None:
        self._broadcast({"type": "leave"})

    def _on_chief_ended(self, _link: HostLink, _message: Message) -> None:
        self._broadcast({"type": "end-workers"})

    def _fail(self, report: FailureReport, settle: float = SETTLE_SECONDS) -> None:
        self._failures.add(report, settle)
        self._links.is_over = True

    def _report_lost(self, host: str, why: str) -> None:
        self._fail(FailureReport.host_lost(host, why, steady.now()))

    def _tick(self, now: float) -> None:
        if now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._links.beat()
        for host, count in self._output.printed() if self._output else ():
            link = self._links.joined.get(host)
            if link:
                link.send({"type": "taken", "count": count})
        self._send_to_all(self._collector.look())
        if self._end_by is not None:
            return
        if self._failures.are_settling:
            if self._failures.are_settled:
                self._abort()
            return
        if self._ends_hang and self._watch.hanging:
            self._end_hang(self._watch.hanging)
            return
        self._look_for_missing_hosts(now)
        self._look_at_limits()
        self._look_for_hang(now)
        states = {link.state for link in self._links.joined.values()}
        if len(self._links.joined) == len(self._hosts) and len(states) == 1:
            [state] = states
            if state == "ready" and self._decision == "":
                self._decide_start()
            elif state not in ("joined", "ready", *self._reached):
                self._reached.add(state)
                self._proceed(state)
        elif self._decision == "stop" and not self._links.joined:
            self._end_by = now

    def _proceed(self, reached: str) -> None:
        """Start the next step after the training, when all hosts have reached a state."""
        if reached == "done":
            self._decide({"type": "finish"})
        elif reached == "listed":
            parts, shares = os.urandom(8).hex(), self._merge.plan()
            for link in list(self._links.joined.values()):
                share = shares[link.host]
                give, compare = to_ranges(share.give), to_ranges(share.compare)
                link.send({"type": "share", "give": give, "compare": compare, "parts": parts})
        elif reached == "shared":
            self._broadcast(
                {"type": "assemble", "givers": self._merge.givers(), "warnings": list(self._warnings())}
            )
        elif reached == "uploaded":
            self._decide({"type": "complete", "completed": self._completed})
            self._end_by = self._clock() + self._end_seconds

    def _warnings(self) -> Iterator[str]:
        differing = self._merge.differing()
        if differing:
            yield differing_message(differing, self._hosts[0])
        strays = [self._strays[host] for host in self._hosts if self._strays.get(host)]
        if strays and MODEL not in self._merge.givers():
            yield stray_message(strays[0])

    def _look_for_missing_hosts(self, now: float) -> None:
        missing = [host for host in self._hosts if host in self._expected]
        if not missing or self._decision:
            return
        self._waiting.report(", ".join(missing))
        if now > self._join_by:
            others = f", nor did {', '.join(missing[1:])}" if missing[1:] else ""
            self._report_lost(missing[0], f"it never joined the job within {self._join_timeout:g} s{others}")

    def _look_at_limits(self) -> None:
        """Stop the hosts if the job has reached a limit. Time before all hosts have joined does not count."""
        if self._limits is None or self._decision not in ("", "start"):
            return
        if self._hosts[0] in self._expected:  # the leader's own runtime has to receive the decision
            return
        if not self._expected:
            self._limits.begin()
        report = self._limits.report()
        if report:
            self._stop = {"type": "stop", "report": report.to_dict()}
            self._decide(self._stop)

    def _send_to_all(self, message: Message | None) -> None:
        if message:
            self._broadcast(message)

    def _abort(self) -> None:
        stacks = "\n".join(self._stacks[host] for host in self._hosts if host in self._stacks)
        report = self._failures.cause(self._ended)
        if self._watch.hanging is None:
            places = with_records(places_in(stacks), self._collector.records)
            report = self._hang.blame(report, places, self._ended)
        if stacks:
            report = FailureReport.from_dict({**report.to_dict(), "stacks": cause_first(stacks, report.rank)})
        self._abortion = {"type": "abort", "report": report.shortened(LARGEST_REPORT).to_dict()}
        self._decide(self._abortion)
        self._collector.finish()
        late = self._expected and self._clock() < self._join_by
        self._end_by = self._clock() + max(LATE_SECONDS if late else 0.0, self._end_seconds)

    def _decide_start(self) -> None:
        report = differing_gpus({host: self._gpus[host] for host in self._ranked if host in self._gpus})
        if report is not None:
            self._fail(report)
            return
        self._started = True
        self._decide(self._start)

    def _decide(self, message: Message) -> None:
        """Send a decision to all hosts, unless it is the same as the last one."""
        if self._decision != message["type"]:
            self._decision = message["type"]
            self._links.is_over = True
            self._broadcast(message)

    def _broadcast(self, message: Message) -> None:
        self._links.broadcast(message)


_HANDLERS: dict[str, Callable[[Leader, HostLink, Message], None]] = {
    "join": Leader._on_join,
    "gone": Leader._on_gone,
    "ready": Leader._on_ready,
    **dict.fromkeys(("done", "listed", "shared", "uploaded", "saving"), Leader._on_state),
    "ended": Leader._on_ended,
    "files": Leader._on_files,
    "digests": Leader._on_digests,
    "failed": Leader._on_failed,
    "lines": Leader._on_lines,
    "inspect": Leader._on_inspect,
    "stacks": Leader._on_stacks,
    "positions": Leader._on_positions,
    "silent": Leader._on_silent,
    "noticed": Leader._on_noticed,
    "stopping": Leader._on_stopping,
    "leaving": Leader._on_leaving,
    "left": Leader._on_left,
    "chief-ended": Leader._on_chief_ended,
}
"""The handler for each type of message from a host."""
