"""One host's part of a job, from its first phase to its outcome.

Every event (the end of a phase or a rank, a message of the leader, a signal) arrives as a message in one inbox. One
thread handles them and makes all decisions, so no locks are needed.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Callable

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.contract import FailureReport, JobStatus, Notice, gpu_count
from cloudtrain.contract.frameworks import SHARED_PORTS, WorldPorts
from cloudtrain.contract.text import one_line
from cloudtrain.contract.trackers import ATTEMPT_ID
from cloudtrain.observe import EventLog, steady
from cloudtrain.observe.events import RECLAIMED
from cloudtrain.runtime.checkpoint_memory import LEFT_SECONDS, copies_of, memory_of
from cloudtrain.runtime.descendants import end_descendants, show_left
from cloudtrain.runtime.diagnose import printed
from cloudtrain.runtime.diagnose.hangs import Watchdog
from cloudtrain.runtime.diagnose.silence import BEAT, LOGGED, PRINTED, Heard, SilenceWatch
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.inputs.preparation import Preparation
from cloudtrain.runtime.launchers.agent_launches import MpirunLaunch, make_launch
from cloudtrain.runtime.launchers.horovod import HorovodChoice, start_rendezvous
from cloudtrain.runtime.launchers.launch import Launch
from cloudtrain.runtime.launchers.launch_plan import (
    library_path,
    make_launch_plan,
    ranks_on_host,
    show_command,
)
from cloudtrain.runtime.leader_client import Inbox, LeaderClient
from cloudtrain.runtime.leader_links import Message
from cloudtrain.runtime.logged_metrics import LoggedMetrics
from cloudtrain.runtime.metrics import MetricFinder
from cloudtrain.runtime.outcome import HostOutcome, phase_failure, without_secrets
from cloudtrain.runtime.output import OutputMerger, say
from cloudtrain.runtime.outputs.host_outputs import OutputUpload
from cloudtrain.runtime.outputs.patience import UPLOAD_SECONDS
from cloudtrain.runtime.phases import Phases
from cloudtrain.runtime.ports import free_port
from cloudtrain.runtime.rank_diagnosis import RankDiagnosis
from cloudtrain.runtime.run_folder import spawn_address_path
from cloudtrain.runtime.sampling.sampler import Sampler
from cloudtrain.runtime.stack_collector import KILLED
from cloudtrain.runtime.trainer_reports import TrainerReports
from cloudtrain.runtime.unsaved import warn_of_loss
from cloudtrain.storage import retry_policy

POLL_SECONDS = 0.03
CHIEF_SECONDS = 5.0
"""How long workers of TensorFlow's parameter servers may continue after the script has completed as the chief."""
STACKS_SECONDS = 2.0
"""If ranks do not end on SIGTERM, their stacks are taken this number of seconds before they are killed."""
LEAVE_SECONDS = 2.0
"""How long other ranks may take to end after a rank has saved its state and exited because of a preemption."""


class HostRun:
    """Runs one host. Use as ``HostRun(...).run()``, once. Does not disconnect from the leader."""

    def __init__(
        self,
        config: HostConfig,
        environ: Mapping[str, str],
        inbox: Inbox,
        leader: LeaderClient,
        events: EventLog,
        keys: Mapping[str, bytes],
    ) -> None:
        self._config = config
        self._memory = memory_of(config, environ)
        self._copies = copies_of(config, self._memory, keys)
        self._environ = {**environ, **self._memory.variables}
        self._inbox = inbox
        self._leader = leader
        self._phases = Phases(events)
        self._events = events
        retry_policy.default.warn = self._warn
        definitions = config.settings.metric_definitions
        self._metrics = MetricFinder(definitions, events) if definitions else None
        self._lost_output = ""
        """Which output of the ranks could not be written, and why."""
        self._hider = ValueHider.of_variables(config.settings.hidden_variables.split(","), environ)
        self._output = OutputMerger(1, config.paths.logs, self._metrics, self._on_output_error, self._hider)
        self._preparation = Preparation(config, environ, self._phases, events, self._on_pipe_error)
        self._rendezvous: subprocess.Popen[bytes] | None = None
        self._reports: TrainerReports | None = None
        self._logged: LoggedMetrics | None = None
        self._sampler = Sampler.of(config, environ, events)
        self._launch: Launch | None = None
        self._launched_at = self._launched = 0.0
        """When the ranks were launched: in seconds since the epoch, for file times, and on `time.monotonic`."""
        self._upload: OutputUpload | None = None
        """Set at the launch."""
        self._diagnosis: RankDiagnosis
        """Set at the launch."""
        self._gpus = 0
        self._done = False
        self._kill_at: float | None = None
        """When ranks that have received SIGTERM are killed."""
        self._inspect_at: float | None = None
        """When the stacks of these ranks are taken, before they are killed."""
        self._stopping = False
        self._limit_reached: FailureReport | None = None
        """Why the leader stops the job, if it has reached a limit."""
        self._leaving = self._left = False
        """Whether the leader was informed that a rank exits because of a preemption, and that it has exited."""
        self._server_reported = False
        self._chief_ended = False
        """Whether a TensorFlow cluster's script has completed on the first host, so that the others are not needed."""
        self._end_workers_at: float | None = None
        """When workers that still run receive SIGTERM."""
        self._watchdog: Watchdog | None = None
        self._warned_of_loss = False
        self._hang_reported = False
        self._silence: SilenceWatch | None = None
        self._broken = False
        """Whether an unexpected error occurred on this host. Its ranks are no longer watched."""

    def run(self) -> HostOutcome:
        """Run all phases. Returns when the job has an outcome and no process is left on this host."""
        self._in_background(self._preparation.run, "prepared")
        outcome = None
        while outcome is None:
            try:
                if self._launch and not self._broken:
                    self._watch(self._launch)
                outcome = self._handle(self._inbox.get(timeout=POLL_SECONDS))
            except queue.Empty:
                pass
            except Exception as error:
                # every host has to end; the leader's answer ends this loop
                self._broken = True
                self._fail(self._report(error))
        self._end(outcome)
        return outcome

    def _handle(self, message: Message) -> HostOutcome | None:
        """Handle one message; an outcome ends the run."""
        handler = _HANDLERS.get(message["type"])
        return handler(self, message) if handler else None

    # -- messages of this host

    def _on_step(self, message: Message) -> None:
        """Report the end of an upload's step, or the failure of the preparation or the upload, to the leader."""
        self._leader.send(message)

    def _on_listed(self, message: Message) -> None:
        strays = self._upload.strays() if self._upload and not self._ends_early else []
        self._leader.send({"strays": strays, **message})

    def _on_signal(self, message: Message) -> HostOutcome | None:
        """Let the leader stop all hosts. If every host receives the signal, stop without its decision."""
        self._events.emit(RECLAIMED, reason="SIGTERM")
        self._leader.send({"type": "stopping"})
        is_for_all = not self._config.settings.restart_exit_code
        return self._on_stop(message) if self._launch and is_for_all else None

    def _on_noticed(self, message: Message) -> None:
        self._events.emit(RECLAIMED, reason=message["reason"])
        deadline = time.time() + self._config.settings.stop_grace
        self._leader.send({"deadline": deadline, **message})

    def _on_orphaned(self, _message: Message) -> HostOutcome:
        why = "the process that started its runtime has ended"
        report = FailureReport.host_lost(self._config.host.current, why, steady.now())
        return HostOutcome(JobStatus.FAILED, report)

    def _on_lost(self, message: Message) -> HostOutcome:
        host = self._config.host
        report = FailureReport.host_lost(host.leader, f"the leader is gone: {message['why']}", steady.now())
        announcer = host.hosts[min(1, host.count - 1)]
        return HostOutcome(JobStatus.FAILED, report, is_announced=host.current == announcer)

    # -- messages of the leader

    def _on_spawn(self, message: Message) -> None:
        if isinstance(self._launch, MpirunLaunch):
            self._launch.start_agent(["/bin/sh", "-c", message["command"]])

    def _on_finish(self, _message: Message) -> None:
        upload = self._upload
        if not upload:
            return
        self._phases.end("train")
        if not self._ends_early:
            self._warn(printed.of_ignored_failure(self._config.entry_point, self._output.tail(0)))
        retry_policy.default.limit = UPLOAD_SECONDS
        if self._config.host.count == 1:
            self._upload_in_background(lambda: upload.run(look_for_strays=not self._ends_early), "uploaded")
        else:
            self._upload_in_background(upload.list_files, "listed")

    def _on_share(self, message: Message) -> None:
        if upload := self._upload:
            self._upload_in_background(lambda: upload.share(message), "shared")

    def _on_assemble(self, message: Message) -> None:
        if upload := self._upload:
            self._upload_in_background(lambda: upload.assemble(message), "uploaded")

    def _on_complete(self, message: Message) -> HostOutcome:
        if self._limit_reached or (self._stopping and not message["completed"]):
            return self._stopped()
        return HostOutcome(JobStatus.COMPLETED)

    def _on_notice(self, message: Message) -> None:
        self._notify_ranks(Notice(message["deadline"], message["reason"]))

    def _on_end_workers(self, _message: Message) -> None:
        self._chief_ended = True
        self._end_workers_at = time.monotonic() + CHIEF_SECONDS

    def _on_leave(self, _message: Message) -> None:
        self._kill_at = time.monotonic() + LEAVE_SECONDS

    def _on_inspect(self, message: Message) -> None:
        if self._config.host.leads:
            self._leader.send(message)

    def _on_dump(self, message: Message) -> None:
        """Take the stacks of this host's ranks. They keep running, and this thread keeps watching them."""
        from cloudtrain.runtime.stack_request import StackRequest

        launch, ended, positions = self._launch, {}, {}
        if launch and self._watchdog:
            ended = {one.rank: one.exit_code for one in launch.exits.values()}
            positions = self._watchdog.describe(launch.exits, self._output.tail)
        if positions and message["hangs"]:
            self._leader.send(self._hider.hide_all({"type": "positions", "ranks": positions}))
        ranks = launch.rank_processes() if launch else []
        self._sampler.query()
        request = StackRequest.of(message, self._config.paths, ranks, ended, self._preparation.python)
        threading.Thread(
            target=lambda: self._inbox.put({"type": "stacks", **request.answer()}), name="stacks", daemon=True
        ).start()

    def _on_stacks(self, message: Message) -> None:
        self._leader.send(self._hider.hide_all(message))

    def _on_abort(self, message: Message) -> HostOutcome:
        if self._upload:
            self._leader.send({"type": "saving"})
        report = FailureReport.from_dict(message["report"])
        if not self._memory.may_stay(report):
            self._wait_for_commits()
        leads = self._config.host.leads
        return HostOutcome(JobStatus.FAILED, report, is_announced=leads, is_decided=not leads)

    def _in_background(self, work: Callable[[], None], done: str) -> None:
        def run() -> None:
            try:
                work()
                if done:
                    self._inbox.put({"type": done})
            except Exception as error:
                self._inbox.put({"type": "failed", "report": self._report(error).to_dict()})

        threading.Thread(target=run, name=done, daemon=True).start()

    def _upload_in_background(self, step: Callable[[], None], done: str) -> None:
        """Run a step of the upload. If it fails, only outputs of ranks that have completed can be sent later."""

        def run() -> None:
            try:
                step()
            except Exception as error:
                config = self._config
                if self._launch is None or self._launch.completed:
                    from cloudtrain.runtime.outputs.upload import upload_failure

                    folder = config.paths.base if config.host.count == 1 else config.paths.base.parent
                    report = upload_failure(error, config.host.current, config.job_name, folder)
                    self._inbox.put({"type": "failed", "report": report.to_dict()})
                    return
                if not self._ends_early:
                    raise
                named = f"{self._config.host.current}: " if self._config.host.count > 1 else ""
                self._warn(f"{named}the outputs of the stopped job could not be uploaded: {one_line(error)}")
            self._inbox.put({"type": done})

        self._in_background(run, "")

    def _warn(self, message: str) -> None:
        """Add a warning to the events and to the log. Does nothing if ``message`` is empty."""
        if not message:
            return
        with contextlib.suppress(OSError):  # a full disk
            self._events.emit("warning", message=message)
        say(message)

    def _on_prepared(self, _message: Message) -> None:
        copies = {"copies": self._copies.offer} if self._copies else {}
        if not self._config.has_ranks:
            self._leader.send({"type": "ready", **copies})
            return
        horovod = self._preparation.horovod
        ranks = ranks_on_host(self._config, self._environ)
        if horovod.controller == "gloo":
            environment = {**self._environ, "PYTHONPATH": library_path(self._config, self._environ)}
            hosts = self._config.host_in_world.hosts
            is_here = len(hosts) == self._config.settings.hosts_on_machine
            self._rendezvous, port = start_rendezvous(
                self._preparation.python, hosts, ranks, environment, loopback=is_here
            )
            horovod = replace(horovod, port=port)
        self._gpus = gpu_count(self._environ)
        found = {} if self._config.launcher.is_none else {"gpus": self._gpus, "ranks": ranks}
        ready: Message = {"type": "ready", "horovod": asdict(horovod), **found, **copies}
        if self._config.host.current == self._config.distribution_hosts[0]:
            ready["ports"] = {name: free_port() for name in SHARED_PORTS}
        if self._config.launcher.has_tasks:
            ready["tasks"] = [free_port(), free_port()]
        self._leader.send(ready)

    def _on_pipe_error(self, error: Exception) -> None:
        """Fail because the data for a pipe cannot be read. Called by the thread that feeds the pipe."""
        report = replace(self._report(error), phase="fetch")
        self._inbox.put({"type": "failed", "report": report.to_dict()})

    def _on_output_error(self, error: OSError) -> None:
        """Record that the log cannot be written, as on a full disk. Ranks continue. Called by the writing thread."""
        self._lost_output = f"{error.strerror} ({self._config.host.current})"

    def _report(self, error: Exception) -> FailureReport:
        return phase_failure(error, self._config.host.current, self._phases.current, self._hider)

    def _fail(self, report: FailureReport) -> None:
        ago = steady.now() - report.time if report.time else 0.0
        hidden = without_secrets(report, self._hider)
        self._leader.send({"type": "failed", "report": hidden.to_dict(), "ago": ago})

    # -- ranks

    def _on_start(self, message: Message) -> None:
        self._environ[ATTEMPT_ID] = message["generation"]
        self._memory.starts(message["generation"])
        if self._copies:
            self._copies.serve(message.get("copies", {}), message["generation"])
        if not self._config.has_ranks:
            self._wait_for_the_ranks()
        elif self._copies and self._copies.may_get:
            self._in_background(partial(self._get_copies, message), "")
        else:
            self._launch_ranks(message)

    def _get_copies(self, message: Message) -> None:
        """Get the copies of this host that others hold, because its own memory may be new or damaged."""
        assert self._copies
        for problem in self._copies.get():
            self._warn(problem)
        self._inbox.put({**message, "type": "launch"})

    def _launch_ranks(self, message: Message) -> None:
        if self._copies:
            self._copies.start()
        self._phases.begin("launch")
        master = (message["master_addr"], message["master_port"])
        horovod = HorovodChoice.from_dict(message["horovod"])
        ports = WorldPorts.from_message(message, self._config.host_in_world.hosts)
        self._reports = TrainerReports.receive(self._config, self._environ, self._events, self._warn)
        environ = {**self._environ, **(self._reports.variables if self._reports else {})}
        python, runs = self._preparation.python, self._preparation.mlflow_runs
        plan = make_launch_plan(self._config, python, master, horovod, environ, ports, runs)
        launch = make_launch(plan, self._output)
        if isinstance(launch, MpirunLaunch) and plan.command:  # mpirun itself runs on this host
            self._leader.write_spawn_address(Path(spawn_address_path(str(plan.run))))
        self._events.emit("launch", command=show_command(plan), ranks=[slot.rank for slot in plan.slots])
        self._diagnosis = RankDiagnosis(self._config, launch, self._sampler, python, self._gpus)
        self._launched_at, self._launched = time.time(), time.monotonic()
        others = (self._reports.take,) if self._reports else ()
        self._logged = LoggedMetrics(str(plan.run), plan.slots, self._events, *others)
        try:
            launch.start()
        except BaseException:
            launch.kill()
            raise
        self._launch = launch
        self._sampler.watch(str(plan.run), plan.slots)
        settings = self._config.settings
        self._watchdog = Watchdog(str(launch.plan.run), launch.plan.slots, settings.hang_timeout)
        heard: dict[str, Heard] = {PRINTED: self._output, LOGGED: self._logged, BEAT: self._watchdog}
        self._silence = SilenceWatch(settings.hang_after, self._launched, heard)
        sync = self._preparation.sync
        if sync:
            sync.start()
        self._upload = OutputUpload(
            self._config, self._phases, self._events, self._leader.send, sync, self._launched_at
        )
        self._phases.end("launch")
        self._phases.begin("train")

    def _wait_for_the_ranks(self) -> None:
        """Wait for the ranks of the other hosts, because this host only leads."""
        self._phases.begin("train")
        self._upload = OutputUpload(
            self._config, self._phases, self._events, self._leader.send, None, time.time()
        )
        self._done = True
        self._leader.send({"type": "done", "completed": True})

    def _watch(self, launch: Launch) -> None:
        """Poll the ranks; report failures, and the end of all ranks, to the leader."""
        # read before poll(), so that poll() has the exits of all ranks that are not running
        running = launch.running and not launch.is_held
        exits = launch.poll()
        self._check_for_preempted_ranks(launch)
        ended = [rank_exit.rank for rank_exit in exits if rank_exit.exit_code == 0]
        if ended:  # sent before the failures that follow from it
            self._leader.send({"type": "ended", "ranks": ended})
        if 0 in ended and self._config.launcher.has_servers and launch.plan.hosts > 1:
            self._leader.send({"type": "chief-ended"})
        ignores_servers = self._ignores_exits or self._server_reported
        server_report = None if ignores_servers else launch.server_report(self._config.host.current)
        if server_report:
            self._server_reported = True
            self._fail(server_report)
        for rank_exit in exits:
            self._events.emit("rank-ended", rank=rank_exit.rank, exit_code=rank_exit.exit_code)
            if rank_exit.exit_code and not self._ignores_exits:
                self._memory.ask_storage()
                self._fail(self._diagnosis.of_rank(rank_exit))
        if self._stopping:
            launch.signal_ranks(signal.SIGTERM)  # including ranks that started since
        if self._end_workers_at is not None and time.monotonic() > self._end_workers_at:
            self._end_workers_at = None
            launch.signal_ranks(signal.SIGTERM)
            self._kill_at = self._kill_at or time.monotonic() + self._config.settings.stop_grace
        if not running and not self._done:
            self._done = True
            agent_report = self._diagnosis.of_agent()
            if agent_report and not self._ignores_exits:
                self._fail(agent_report)
            elif self._ignores_exits or not any(rank_exit.exit_code for rank_exit in launch.exits.values()):
                self._leader.send({"type": "done", "completed": launch.completed})
        if running and self._inspect_at is not None and time.monotonic() > self._inspect_at:
            self._inspect_at = None
            self._leader.send({"type": "inspect", "native": False, "why": KILLED})
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._kill_at = None
            launch.kill()
        self._check_for_hang(launch)

    @property
    def _ends_early(self) -> bool:
        """Whether exit codes of ranks no longer count as failures."""
        return self._stopping or self._leaving

    @property
    def _ignores_exits(self) -> bool:
        """Whether exit codes of ranks no longer count as failures, because of a stop or because the chief has ended."""
        return self._ends_early or self._chief_ended

    def _check_for_preempted_ranks(self, launch: Launch) -> None:
        """Report to the leader that a rank exits because of a preemption, before other ranks fail as a result."""
        if not self._leaving and launch.preempted(gone=False):
            self._leaving = True
            self._leader.send({"type": "leaving"})
        if self._leaving and not self._left and launch.preempted(gone=True):
            self._left = True
            self._leader.send({"type": "left"})

    def _check_for_hang(self, launch: Launch) -> None:
        if self._watchdog is None or self._hang_reported or self._ignores_exits or not launch.running:
            return
        report = self._watchdog.check(self._config.host.current, launch.exits, self._output.tail)
        if report:
            self._hang_reported = True
            self._fail(report)
        sampler, now = self._sampler, time.monotonic()
        silence = self._silence and self._silence.look(now, sampler.idle, launch.exits, sampler.signs)
        if silence:
            self._leader.send(silence.to_message())

    def _on_stop(self, message: Message) -> HostOutcome | None:
        """Stop the ranks within the grace period. Before the launch, end immediately."""
        if "report" in message:
            self._limit_reached = FailureReport.from_dict(message["report"])
        if self._stopping:
            return None
        self._stopping = True
        grace = self._config.settings.stop_grace
        self._events.emit("stopping", grace=grace)
        self._notify_ranks(Notice(time.time() + grace, "the job is stopped"))
        kill_at = time.monotonic() + grace
        retry_policy.default.until = lambda: kill_at
        if self._launch is None and self._upload:  # it has no ranks
            return None
        if self._launch is None:
            retry_policy.default.give_up()
            return self._stopped()
        if not self._launch.scripts_started:
            self._launch.end_unstarted()
        self._warn(printed.of_lost_worker(self._output.tail(0)))
        self._kill_at = kill_at
        self._inspect_at = kill_at - min(STACKS_SECONDS, grace / 2)
        return None

    def _stopped(self) -> HostOutcome:
        if self._limit_reached:
            return HostOutcome.at_limit(self._limit_reached, leads=self._config.host.leads)
        return HostOutcome(JobStatus.INTERRUPTED)

    def _notify_ranks(self, notice: Notice) -> None:
        """Write the notice for the ranks."""
        with contextlib.suppress(OSError):  # a full disk; SIGTERM follows in any case
            self._events.emit("notice", deadline=notice.deadline, reason=notice.reason)
            notice.write(self._config.paths.run)
        if self._config.host.leads and self._launch and not self._done and not self._warned_of_loss:
            self._warned_of_loss = True
            warn_of_loss(self._config, notice, time.monotonic() - self._launched, self._warn)

    def _wait_for_commits(self) -> None:
        """Give pending checkpoints of a failed job the grace period before its ranks are killed."""
        pending = self._launch.commits() if self._launch else set()
        deadline = time.monotonic() + self._config.settings.stop_grace
        while self._launch and pending & self._launch.commits() and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                if self._inbox.get(timeout=POLL_SECONDS)["type"] == "orphaned":
                    return

    def _end(self, outcome: HostOutcome) -> None:
        if self._rendezvous:
            self._rendezvous.kill()
            self._rendezvous.wait()
        if self._launch:
            self._launch.kill()
        for channel in self._preparation.inputs:  # must precede the end of the processes that hold the mounts
            channel.stop()
        if self._launch:
            if left := end_descendants(since=self._launch.killed_at):
                self._warn(show_left(left))
            if self._reports:
                self._reports.close()
            if self._logged:
                self._logged.close()
            self._launch.clean_up()
            self._output.close()
        self._sampler.close()
        if self._metrics:
            self._metrics.close()
        if outcome.leaves_outputs or not self._stopping:
            grace = 0.0 if self._memory.stays else self._config.settings.stop_grace
            grace = grace if outcome.leaves_outputs else min(grace, LEFT_SECONDS)
            end = time.monotonic() + grace
            retry_policy.default.until = lambda: end
        self._memory.end(outcome, self._warn, self._copies)
        if outcome.leaves_outputs and self._upload:
            self._upload.run_after_failure()
        retry_policy.default.give_up()  # no thread may delay the end of this process
        with contextlib.suppress(OSError):  # a full disk, a removed folder; the exit code still reports it
            outcome.write(self._config.paths)
            if self._lost_output:
                self._events.emit("warning", message=self._lost_output)
            code = outcome.exit_code_with(self._config.settings.restart_exit_code)
            failure = {"failure": outcome.failure.summary()} if outcome.failure else {}
            self._events.emit("outcome", status=str(outcome.status), exit_code=code, **failure)


_HANDLERS: dict[str, Callable[[HostRun, Message], HostOutcome | None]] = {
    "prepared": HostRun._on_prepared,
    "listed": HostRun._on_listed,
    **dict.fromkeys(("shared", "uploaded", "failed"), HostRun._on_step),
    "signal": HostRun._on_signal,
    "noticed": HostRun._on_noticed,
    "orphaned": HostRun._on_orphaned,
    "lost": HostRun._on_lost,
    "start": HostRun._on_start,
    "launch": HostRun._launch_ranks,
    "spawn": HostRun._on_spawn,
    "finish": HostRun._on_finish,
    "share": HostRun._on_share,
    "assemble": HostRun._on_assemble,
    "complete": HostRun._on_complete,
    "stop": HostRun._on_stop,
    "notice": HostRun._on_notice,
    "end-workers": HostRun._on_end_workers,
    "leave": HostRun._on_leave,
    "inspect": HostRun._on_inspect,
    "dump": HostRun._on_dump,
    "stacks": HostRun._on_stacks,
    "abort": HostRun._on_abort,
}
"""The handler for each type of message."""
