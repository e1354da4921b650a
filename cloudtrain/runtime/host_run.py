"""One host's part of a job, from its first phase to its outcome.

Every event (the end of a phase or a rank, a message of the leader, a signal) arrives as a message in one inbox. One
thread handles them and makes all decisions, so no locks are needed.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from cloudtrain.contract import FailureClass, FailureReport, JobStatus, Notice, Paths
from cloudtrain.errors import NotFound, StorageError
from cloudtrain.observe import EventLog
from cloudtrain.runtime.checkpoint_sync import CheckpointSync
from cloudtrain.runtime.descendants import end_descendants
from cloudtrain.runtime.diagnose import diagnose, diagnose_torchrun, memory_kill_count, report_error
from cloudtrain.runtime.hints.table import JobFacts
from cloudtrain.runtime.horovod import start_rendezvous
from cloudtrain.runtime.horovod_choice import HorovodChoice
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.inputs import fetch_channel, fetch_source, mount_channel, open_pipes
from cloudtrain.runtime.installer import RequirementsFailed
from cloudtrain.runtime.launch import Launch
from cloudtrain.runtime.launch_plan import library_path, make_launch_plan, ranks_on_host, show_command
from cloudtrain.runtime.leader import Message
from cloudtrain.runtime.leader_client import Inbox, LeaderClient
from cloudtrain.runtime.merge import stray_message
from cloudtrain.runtime.output import MetricFinder, OutputMerger, write_all
from cloudtrain.runtime.phases import Phase, Phases
from cloudtrain.runtime.requirements import install
from cloudtrain.runtime.run_folder import spawn_address_path
from cloudtrain.storage import Progress, uri_scheme

if TYPE_CHECKING:
    from cloudtrain.runtime.pipes import PipeChannel
    from cloudtrain.runtime.upload import HostOutputs, Results
    from cloudtrain.storage.mount import S3Mount

POLL_SECONDS = 0.03

LEAVE_SECONDS = 2.0
"""Seconds that other ranks may take to end after a rank has saved its state and exited because of a preemption."""


@dataclass(frozen=True)
class HostOutcome:
    """How this host's part ended; the same on every host of the job."""

    status: JobStatus
    failure: FailureReport | None = None
    is_announced: bool = True
    """Whether this host prints the failure: of the hosts that know it, only one does."""

    @property
    def exit_code(self) -> int:
        """0; the code of the rank that failed first; or 143 (128 + SIGTERM) if the job was stopped."""
        if self.status == JobStatus.COMPLETED:
            return 0
        return self.failure.exit_code or 1 if self.failure else 128 + signal.SIGTERM

    def write(self, paths: Paths) -> None:
        """Write the files of the contract: ``failure`` or ``success``."""
        if self.failure:
            paths.failure.write_text(self.failure.reason(), encoding="utf-8", errors="backslashreplace")
            paths.failure_report.write_text(
                self.failure.to_json(), encoding="utf-8", errors="backslashreplace"
            )
        elif self.status == JobStatus.COMPLETED:
            paths.success.touch()


class HostRun:
    """Runs one host. Use as ``HostRun(...).run()``, once."""

    def __init__(
        self,
        config: HostConfig,
        environ: Mapping[str, str],
        inbox: Inbox,
        leader: LeaderClient,
        events: EventLog,
    ) -> None:
        self._config = config
        self._environ = environ
        self._inbox = inbox
        self._leader = leader
        self._phases = Phases(events)
        self._events = events
        metrics = config.settings.metric_definitions
        self._output = OutputMerger(
            1,
            config.paths.logs,
            MetricFinder(metrics, events.emit) if metrics else None,
            self._on_output_error,
        )
        self._inputs: list[PipeChannel | S3Mount] = []
        """The channels that end with the job."""
        self._sync: CheckpointSync | None = None
        self._python = ""
        self._horovod = HorovodChoice()
        """Made on rank 0's host, for all hosts."""
        self._rendezvous: subprocess.Popen[bytes] | None = None
        self._launch: Launch | None = None
        self._launched_at = 0.0
        self._outputs: HostOutputs
        """With several hosts, from the end of the training on."""
        self._uploading: Phase
        self._memory_kills = 0
        self._done = False
        self._kill_at: float | None = None
        """When ranks that have been asked to stop are killed."""
        self._stopping = False
        self._leaving = self._left = False
        """Whether the leader knows that a rank exits because of a preemption, and that it has exited."""
        self._hang_reported = False
        self._broken = False
        """Whether an unexpected error occurred on this host. Its ranks are no longer watched."""

    def run(self) -> HostOutcome:
        """Run all phases. Returns when the job has an outcome; no process is left on this host then."""
        self._in_background(self._prepare, "prepared")
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
        kind = message["type"]
        if kind == "prepared":
            self._get_ready()
        elif kind == "start":
            self._start(message)
        elif kind == "spawn" and self._launch:
            self._launch.start_agent(["/bin/sh", "-c", message["command"]])
        elif kind == "finish":
            self._phases.end("train")
            if self._config.host.count == 1:
                self._in_background(self._upload, "uploaded")
            else:
                self._in_background(self._list_outputs, "listed")
        elif kind == "share":
            self._in_background(lambda: self._share_outputs(message), "shared")
        elif kind == "assemble":
            self._in_background(lambda: self._assemble_outputs(message), "uploaded")
        elif kind in ("listed", "shared", "uploaded"):
            self._leader.send({"strays": self._strays(), **message} if kind == "listed" else message)
        elif kind == "complete":
            return HostOutcome(JobStatus.INTERRUPTED if self._stopping else JobStatus.COMPLETED)
        elif kind == "failed":
            self._leader.send(message)
        elif kind == "signal":
            self._leader.send({"type": "stopping"})
        elif kind == "stop":
            return self._stop()
        elif kind == "noticed":
            deadline = time.time() + self._config.settings.stop_grace
            self._leader.send({"deadline": deadline, **message})
        elif kind == "notice":
            self._notify_ranks(Notice(message["deadline"], message["reason"]))
        elif kind == "leave":
            self._kill_at = time.monotonic() + LEAVE_SECONDS
        elif kind == "dump":
            self._leader.send({"type": "stacks", "text": self._launch.stacks() if self._launch else ""})
        elif kind == "abort":
            self._wait_for_commits()
            report = FailureReport.from_dict(message["report"])
            return HostOutcome(JobStatus.FAILED, report, is_announced=self._config.host.leads)
        elif kind == "orphaned":
            why = "the process that started its runtime has ended"
            return HostOutcome(
                JobStatus.FAILED, FailureReport.host_lost(self._config.host.current, why, time.time())
            )
        elif kind == "lost":
            host = self._config.host
            report = FailureReport.host_lost(host.leader, "the leader is gone", time.time())
            return HostOutcome(JobStatus.FAILED, report, is_announced=host.current == host.hosts[1])
        return None

    # -- phases, in a background thread

    def _in_background(self, work: Callable[[], None], done: str) -> None:
        def run() -> None:
            try:
                work()
                self._inbox.put({"type": done})
            except Exception as error:
                self._inbox.put({"type": "failed", "report": self._report(error).to_dict()})

        threading.Thread(target=run, name=done, daemon=True).start()

    def _prepare(self) -> None:
        config = self._config
        if config.source_uri:
            with self._phases("unpack"):
                fetch_source(config)
            if config.settings.no_opt_ml and config.host.leads and config.settings.attempt == 0:
                self._warn_about_opt_ml()
        if config.settings.channels:
            with self._phases("fetch") as phase:
                for name, uri in config.settings.channels:
                    self._bring_channel(name, uri, phase)
        if config.settings.checkpoint_uri:
            with self._phases("restore"):
                self._sync = CheckpointSync(
                    config.paths.checkpoints, config.settings.checkpoint_uri, self._events
                )
                self._sync.restore()
        config.check_python()
        with self._phases("requirements"):
            self._python = install(
                config.paths.code,
                python=config.python,
                package=config.is_package,
                cache=config.settings.requirements_cache,
                say=self._say if config.host.leads or config.settings.requirements_cache else _say_nothing,
                leads=config.host.leads,
            )

        if config.host.current == config.distribution_hosts[0]:
            self._horovod = HorovodChoice.make(config.launcher, self._python, self._environ)

    def _say(self, line: str) -> None:
        """Print a line of the runtime itself, before the output of the ranks."""
        with contextlib.suppress(OSError):  # a full disk: the output of the ranks will meet it too
            write_all(1, f"[cloudtrain] {line}\n".encode("utf-8", "backslashreplace"))

    def _warn_about_opt_ml(self) -> None:
        from cloudtrain.contract.opt_ml import advice, find_uses, show_uses, source_texts

        uses = find_uses(source_texts(self._config.paths.code))
        if uses:
            reason = self._config.settings.no_opt_ml
            message = f"{show_uses(uses)}, but this job has no /opt/ml: {reason}. {advice(uses[0].path)}"
            self._events.emit("warning", message=message)
            self._say(message)

    def _get_ready(self) -> None:
        if self._horovod.controller == "gloo":
            environment = {**self._environ, "PYTHONPATH": library_path(self._config, self._environ)}
            ranks = ranks_on_host(self._config, self._environ)
            self._rendezvous, port = start_rendezvous(
                self._python, self._config.host_in_world.hosts, ranks, environment
            )
            self._horovod = replace(self._horovod, port=port)
        self._leader.send({"type": "ready", "horovod": asdict(self._horovod)})

    def _upload(self) -> None:
        """Upload the outputs of the only host."""
        with self._phases("upload") as phase:
            self._upload_remaining(phase.add, model=True)
            strays = self._strays()
            if strays:
                self._warn(stray_message(strays))

    def _upload_remaining(self, progress: Progress, *, model: bool) -> None:
        """Upload the last checkpoints, the outputs, and the model if the job succeeded. Raises StorageError."""
        from cloudtrain.runtime.upload import upload_outputs

        if self._sync and self._config.host.leads:
            self._sync.finish()
        self._record(upload_outputs([self._config], progress, model=model))

    def _list_outputs(self) -> None:
        from cloudtrain.runtime.upload import HostOutputs

        self._uploading = self._phases.begin("upload")
        if self._sync and self._config.host.leads:
            self._sync.finish()
        self._outputs = HostOutputs(self._config)
        self._send(self._outputs.list())

    def _share_outputs(self, message: Message) -> None:
        self._send(self._outputs.share(message, self._uploading.add))

    def _assemble_outputs(self, message: Message) -> None:
        self._record(self._outputs.assemble(message, self._uploading.add))
        self._phases.end("upload")

    def _send(self, messages: Iterator[Message]) -> None:
        for message in messages:
            self._leader.send(message)

    def _record(self, results: Results) -> None:
        results.record(self._events)
        for warning in results.warnings:
            self._warn(warning)

    def _warn(self, message: str) -> None:
        self._events.emit("warning", message=message)
        sys.stderr.write(f"[cloudtrain] {message}\n")
        sys.stderr.flush()

    def _strays(self) -> list[str]:
        """Models that the script wrote into its working folder, if the model's folder is empty."""
        model = self._config.paths.model
        if self._ends_early or (model.is_dir() and any(model.iterdir())):
            return []
        from cloudtrain.runtime.stray_models import find_stray_models

        return find_stray_models(self._config.paths.code, self._launched_at)

    def _bring_channel(self, name: str, uri: str, phase: Phase) -> None:
        """Provide a channel in its input mode. FastFile copies the data if it cannot be mounted, and says so."""
        mode = self._config.channels.get(name, {}).get("TrainingInputMode")
        if mode == "Pipe":
            self._inputs.append(open_pipes(self._config, name, uri, self._on_pipe_error))
            return
        if mode == "FastFile" and uri_scheme(uri) == "s3":
            try:
                self._inputs.append(mount_channel(self._config, name, uri))
            except NotFound:
                raise
            except StorageError as error:
                if self._config.host.leads:
                    sys.stderr.write(
                        f"[cloudtrain] channel {name}: FastFile copies the data: {error.message}\n"
                    )
                    sys.stderr.flush()
            else:
                return
        fetch_channel(self._config, name, uri, phase.add_total, phase.add)

    def _on_pipe_error(self, error: Exception) -> None:
        """The data of a pipe cannot be read. Called by the thread that feeds it."""
        report = replace(self._report(error), phase="fetch")
        self._inbox.put({"type": "failed", "report": report.to_dict()})

    def _on_output_error(self, error: OSError) -> None:
        """The log cannot be written, for example to a full disk. Called by the thread that writes it."""
        report = replace(self._report(error), message=f"cannot write the output of the ranks: {error}")
        self._inbox.put({"type": "failed", "report": report.to_dict()})

    def _report(self, error: Exception) -> FailureReport:
        """The report of an error in a phase. Does not name a rank."""
        if isinstance(error, RequirementsFailed):
            return replace(error.report, host=self._config.host.current, time=time.time())
        return report_error(error, self._config.host.current, self._phases.current)

    def _fail(self, report: FailureReport) -> None:
        self._leader.send({"type": "failed", "report": report.to_dict()})

    # -- ranks

    def _start(self, message: Message) -> None:
        self._phases.begin("launch")
        master = (message["master_addr"], message["master_port"])
        horovod = HorovodChoice.from_dict(message["horovod"])
        plan = make_launch_plan(self._config, self._python, master, horovod, self._environ)
        if "spawn_token" in message:  # mpirun may run on this host
            self._leader.write_address(Path(spawn_address_path(str(plan.run))), message["spawn_token"])
        self._events.emit("launch", command=show_command(plan), ranks=[slot.rank for slot in plan.slots])
        self._memory_kills = memory_kill_count()
        self._launched_at = time.time()
        launch = Launch(plan, self._output)
        try:
            launch.start()
        except BaseException:
            launch.kill()
            raise
        self._launch = launch
        if self._sync and self._config.host.leads:
            self._sync.start()
        self._phases.end("launch")
        self._phases.begin("train")

    def _watch(self, launch: Launch) -> None:
        """Poll the ranks; report failures, and the end of all ranks, to the leader."""
        running = launch.running  # before poll(), which then has the exits of all ranks that are not running
        exits = launch.poll()
        self._check_for_preempted_ranks(launch)
        for rank_exit in exits:
            self._events.emit("rank-ended", rank=rank_exit.rank, exit_code=rank_exit.exit_code)
            if rank_exit.exit_code and not self._ends_early:
                kills = memory_kill_count() - self._memory_kills
                host = self._config.host.current
                report = (
                    diagnose_torchrun(rank_exit, self._python, host)
                    if launch.plan.agent == "torchrun"
                    else None
                )
                report = report or diagnose(rank_exit, host, memory_kills=kills, facts=self._facts())
                self._fail(self._with_opt_ml_hint(report))
        if self._stopping:
            launch.signal_ranks(signal.SIGTERM)  # including ranks that started since
        if not running and not self._done:
            self._done = True
            agent_report = launch.agent_report(self._config.host.current)
            if agent_report and not self._ends_early:
                self._fail(agent_report)
            elif self._ends_early or not any(rank_exit.exit_code for rank_exit in launch.exits.values()):
                self._leader.send({"type": "done"})
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._kill_at = None
            launch.kill()
        self._check_for_hang(launch)

    def _with_opt_ml_hint(self, report: FailureReport) -> FailureReport:
        reason = self._config.settings.no_opt_ml
        if not reason:
            return report
        from cloudtrain.contract.opt_ml import with_hint

        return with_hint(report, reason)

    def _facts(self) -> JobFacts:
        """The facts that hints may name."""
        return JobFacts(code=self._config.paths.code, channels=self._config.channels.keys())

    @property
    def _ends_early(self) -> bool:
        """Whether exit codes of ranks no longer count as failures."""
        return self._stopping or self._leaving

    def _check_for_preempted_ranks(self, launch: Launch) -> None:
        """Report to the leader that a rank exits because of a preemption, before others fail without it."""
        if not self._leaving and launch.preempted(gone=False):
            self._leaving = True
            self._leader.send({"type": "leaving"})
        if self._leaving and not self._left and launch.preempted(gone=True):
            self._left = True
            self._leader.send({"type": "left"})

    def _check_for_hang(self, launch: Launch) -> None:
        limit = self._config.settings.hang_timeout
        if not limit or self._hang_reported or self._ends_early or not launch.running:
            return
        rank, silence = launch.most_silent()
        if silence > limit:
            self._hang_reported = True
            report = FailureReport(
                FailureClass.HANG,
                f"no heartbeat for {silence:.0f} s (hang_timeout is {limit:g} s)",
                "See the stacks of all ranks in the failure report: they show where each rank waits.",
                rank=rank,
                host=self._config.host.current,
                phase="train",
                log_tail=self._output.tail(rank),
                time=time.time(),
            )
            self._fail(report)

    def _stop(self) -> HostOutcome | None:
        """Ask the ranks to stop within the grace period. Before the launch, end immediately."""
        self._stopping = True
        grace = self._config.settings.stop_grace
        self._events.emit("stopping", grace=grace)
        self._notify_ranks(Notice(time.time() + grace, "the job is stopped"))
        if self._launch is None:
            return HostOutcome(JobStatus.INTERRUPTED)
        if not self._launch.scripts_started:
            self._launch.kill()  # no rank has reached its script: there is nothing to save
        self._kill_at = time.monotonic() + grace
        return None

    def _notify_ranks(self, notice: Notice) -> None:
        """Write the notice for the ranks."""
        with contextlib.suppress(OSError):  # a full disk; SIGTERM follows in any case
            self._events.emit("notice", deadline=notice.deadline, reason=notice.reason)
            notice.write(self._config.paths.run)

    # -- the end

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
        for channel in self._inputs:  # before the processes that hold the mounts are ended
            channel.stop()
        if self._launch:
            end_descendants()
            self._launch.clean_up()
            self._output.close()
        if outcome.failure and self._launch:
            self._upload_after_failure()
        with contextlib.suppress(OSError):  # a full disk, a removed folder; the exit code still reports it
            outcome.write(self._config.paths)
            self._events.emit(
                "outcome",
                status=str(outcome.status),
                exit_code=outcome.exit_code,
                **({"failure": outcome.failure.summary()} if outcome.failure else {}),
            )
        self._leader.close()

    def _upload_after_failure(self) -> None:
        """Upload the last checkpoints and outputs of a failed job, as far as possible."""
        if not self._config.host.leads:
            return
        try:
            from cloudtrain.runtime.upload import remove_parts

            self._upload_remaining(lambda count: None, model=False)
            remove_parts(self._config)
        except Exception as error:
            with contextlib.suppress(OSError):  # the job's own failure is the one to report
                self._events.emit(
                    "warning", message=f"cannot upload the remaining checkpoints and outputs: {error}"
                )


def _say_nothing(_line: str) -> None:
    """For hosts whose output repeats that of the leader."""
