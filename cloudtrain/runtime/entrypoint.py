"""The runtime's main program on one host: signals, the leader, the run, the exit code."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import MutableMapping
from dataclasses import asdict, replace

from cloudtrain._system.memory import close_memory
from cloudtrain._system.queues import SignalSafeQueue
from cloudtrain._system.signals import ENDING, SIGHUP, handle, unblock
from cloudtrain.contract import SPOT_VARIABLE, FailureReport, JobStatus, Paths
from cloudtrain.contract.preemption import NATIVE_STACKS, STACKS
from cloudtrain.contract.trackers import TRAINER_URL
from cloudtrain.link.secret import VARIABLE, derive, write_ranks_secret
from cloudtrain.observe import EventLog, steady
from cloudtrain.runtime.descendants import adopt_orphans
from cloudtrain.runtime.ending import restart_exit_code, write_ending
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.host_run import HostRun
from cloudtrain.runtime.job_secret import (
    given_secret,
    job_identity,
    take_secret,
)
from cloudtrain.runtime.leader import Leader
from cloudtrain.runtime.leader_client import (
    Inbox,
    JoinInterrupted,
    LeaderClient,
    LeaderNotFound,
    listen,
)
from cloudtrain.runtime.outcome import NO_FAULT, SPARES, HostOutcome
from cloudtrain.runtime.parent_death import die_with_parent
from cloudtrain.runtime.ports import free_port, hold
from cloudtrain.runtime.restarted import STOP_SIGNALS, earlier_failure, start_again
from cloudtrain.storage.disk_reserve import Reserve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.runtime.forwarding import OutputForwarder
    from cloudtrain.runtime.leader_notifications import HangNotifier
    from cloudtrain.runtime.limits import Limits

NOTICE_SIGNAL = "SIGUSR1"
"""Slurm sends it before SIGTERM if a job requests that with ``--signal=USR1@120``."""

ORPHANED_SIGNAL = "SIGUSR2"
"""The node program of a scheduler sends it when its own parent has ended."""

NOTIFY = "CLOUDTRAIN_NOTIFY"
"""The variable of `Settings.notify`."""

DEFAULT_PORT = 7778
"""The leader's port, unless `Settings.rendezvous` contains another."""


def main() -> int:
    """Run this host's part of the job; returns the exit code of its outcome. Call it once per process."""
    inbox: Inbox = SignalSafeQueue()
    is_asked_to_end = False

    def end(_number: int, _frame: object) -> None:
        nonlocal is_asked_to_end
        is_asked_to_end = True
        inbox.put({"type": "signal"})

    tether = os.environ.get("CLOUDTRAIN_DIE_WITH_PARENT")

    def hang_up(number: int, frame: object) -> None:
        if tether and tether != "stdin" and os.getppid() != int(tether):
            inbox.put({"type": "orphaned"})
        else:
            end(number, frame)

    for number in STOP_SIGNALS:
        signal.signal(number, end)
    if signal.getsignal(SIGHUP) != signal.SIG_IGN:  # not under nohup
        handle("SIGHUP", hang_up)
    handle(ORPHANED_SIGNAL, lambda _number, _frame: inbox.put({"type": "orphaned"}))
    handle(
        NOTICE_SIGNAL,
        lambda _number, _frame: inbox.put({"type": "noticed", "reason": f"signal {NOTICE_SIGNAL}"}),
    )
    handle(STACKS, lambda _number, _frame: inbox.put({"type": "inspect", "native": False}))
    handle(NATIVE_STACKS, lambda _number, _frame: inbox.put({"type": "inspect", "native": True}))
    unblock(ENDING)  # see zipapp_main
    if tether == "stdin":
        threading.Thread(target=_hold_stdin, args=(inbox,), daemon=True).start()
    elif tether:
        handle("SIGHUP", hang_up)
        # not SIGKILL: this process still has to end everything that the ranks started
        die_with_parent(SIGHUP, parent=int(tether))
        if os.getppid() != int(tether):
            return 1  # nothing has been touched yet
    adopt_orphans()
    steady.pass_on()
    paths, started_at, environ = Paths.from_environ(), steady.now(), dict(os.environ)
    secret = given_secret(paths, environ)
    try:
        outcome = run(paths, os.environ, inbox)
    except Exception as error:
        from cloudtrain.runtime.diagnose.ranks import report_error

        outcome = HostOutcome(
            JobStatus.FAILED, report_error(error, os.environ.get("CURRENT_HOST", ""), "start")
        )
    if outcome.failure:
        with contextlib.suppress(OSError):
            outcome.write(paths)
        if outcome.is_announced:
            with contextlib.suppress(OSError):  # a full disk
                sys.stderr.write(f"[cloudtrain] {outcome.failure.summary()}\n")
                sys.stderr.flush()
    Reserve(paths.output, SPARES).remove()
    write_ending(outcome, paths, started_at, environ)
    if environ.get(NOTIFY):
        from cloudtrain.runtime.leader_notifications import notify_end

        notify_end(outcome, paths, environ, started_at, lambda: is_asked_to_end)
        write_ending(outcome, paths, started_at, environ)  # with a warning if a notification has not arrived
    code = outcome.exit_code_with(restart_exit_code(environ))
    if outcome.leaves_machine:
        return code
    start_again(code, {**environ, VARIABLE: secret} if secret else environ, lambda: is_asked_to_end)
    return code


def _hold_stdin(inbox: Inbox) -> None:
    """Wait for EOF on stdin. In a container on this machine, it means that the starting process has ended."""
    with contextlib.suppress(OSError):
        while os.read(0, 1 << 12):
            pass
    inbox.put({"type": "orphaned"})


def run(paths: Paths, environ: MutableMapping[str, str], inbox: Inbox) -> HostOutcome:
    """Run this host's part of the job under ``paths``.

    Raises:
        CloudtrainError: the contract is invalid, there is no job secret, or the leader was not found.
    """
    outcome = earlier_failure(paths, environ)
    if outcome:
        return outcome
    paths = _clean(paths)
    config = HostConfig.read(paths, environ)
    notify_hang = None
    if environ.get(NOTIFY) and config.host.leads:
        from cloudtrain.runtime.leader_notifications import HangNotifier

        notify_hang = HangNotifier(config, dict(environ))
    for name in filter(None, config.settings.dropped_variables.split(",")):
        environ.pop(name, None)
    settings, host = config.settings, config.host
    if settings.spare:
        from cloudtrain.runtime.spare import wait_as_spare

        return wait_as_spare(config, environ, inbox)
    identity = job_identity(paths, environ)
    secret, caller = take_secret(paths, environ, host.count), None
    events = EventLog(paths.events, host.current)
    if settings.spare_hosts:
        from cloudtrain.runtime.roll_call import Caller

        caller = Caller(config, environ, inbox, secret, events)
        found = caller.find()
        if isinstance(found, HostOutcome):
            return found
        config, host = found, found.host
    events.emit("host", hosts=list(host.hosts), attempt=settings.attempt, pid=os.getpid())
    forwards = settings.forward_output and host.count > 1 and not host.leads
    with contextlib.ExitStack() as stack:
        forwarder = None
        if forwards:
            from cloudtrain.runtime.forwarding import OutputForwarder

            forwarder = stack.enter_context(OutputForwarder(host.current))
        stack.enter_context(_listeners(config, environ))
        outcome = _take_part(config, environ, inbox, events, (identity, secret), forwarder, notify_hang)
        if caller:
            caller.end(outcome)
        return outcome


def _listeners(config: HostConfig, environ: MutableMapping[str, str]) -> contextlib.ExitStack:
    """Print and report the events of this host during the block, if the platform requests that."""
    listeners = contextlib.ExitStack()
    if config.settings.event_lines:
        from cloudtrain.runtime.event_printer import EventPrinter

        listeners.enter_context(EventPrinter(config, environ))
    if environ.get(TRAINER_URL):
        from cloudtrain.runtime.trainer_status import TrainerStatus, is_wanted

        if is_wanted(config, environ):
            listeners.enter_context(TrainerStatus(config, environ))
    return listeners


def _take_part(
    config: HostConfig,
    environ: MutableMapping[str, str],
    inbox: Inbox,
    events: EventLog,
    known: tuple[str, str],
    forwarder: OutputForwarder | None,
    notify_hang: HangNotifier | None,
) -> HostOutcome:
    """Find or run the leader, and run this host's part. ``known``: the identity and the secret of the job."""
    paths, settings, host = config.paths, config.settings, config.host
    identity, secret = known
    keys = {
        purpose: derive(secret, purpose, settings.attempt)
        for purpose in ("control", "spawn", "tls", "copies")
    }
    write_ranks_secret(paths.run, derive(secret, "ranks", settings.attempt).hex())
    restarts = bool(settings.restart_exit_code)
    if (
        restarts
    ):  # in a pod, the script runs as the same user, and nothing outside has to read this process's memory
        close_memory()
    rendezvous = settings.rendezvous or (
        str(paths.run / "leader") if host.count == 1 else f"{host.leader}:{DEFAULT_PORT}"
    )
    leader = output = limits = None
    began = steady.now()
    if host.leads:
        if settings.max_run or settings.max_preemptions >= 0:
            from cloudtrain.runtime.limits import Limits

            limits = Limits(settings, identity)
        if settings.forward_output and host.count > 1:
            from cloudtrain.runtime.forwarding import ForwardedOutput

            output = ForwardedOutput(events)
        # the name of a single host need not resolve
        address = settings.master_addr or ("127.0.0.1" if host.count == 1 else host.leader)
        first = config.distribution_hosts[0]
        shares_machine = first == host.leader or settings.hosts_on_machine == host.count
        if settings.master_port:
            hold(settings.master_port)
        leader = Leader(
            listen(rendezvous, address),
            host.hosts,
            keys,
            ranked=config.distribution_hosts,
            master=(address if shares_machine else first, settings.master_port or free_port()),
            join_timeout=settings.join_timeout,
            host_timeout=settings.host_timeout,
            restarts=restarts,
            output=output,
            limits=limits,
            hang_after=settings.hang_after,
            on_hang=settings.on_hang,
            notify_hang=notify_hang,
            events=events,
        )
        leader.start()
    try:
        client = LeaderClient.join(
            host.current,
            rendezvous,
            keys,
            inbox,
            settings.join_timeout,
            settings.host_timeout,
            restarts=restarts,
        )
    except JoinInterrupted:
        return HostOutcome(JobStatus.INTERRUPTED)
    except LeaderNotFound as error:
        if error.is_unreachable or not restarts:
            raise
        # its machine may have been lost, or may not be available yet
        report = FailureReport.host_lost(host.leader, error.message, steady.now())
        return HostOutcome(JobStatus.FAILED, replace(report, hint=error.hint, phase="start"))
    if forwarder:
        forwarder.attach(client)
    if environ.get(SPOT_VARIABLE):
        from cloudtrain.environment.spot import watch_spot

        watch_spot(lambda notice: inbox.put({"type": "noticed", **asdict(notice)}))
    outcome = HostRun(config, environ, inbox, client, events, keys).run()
    if not forwarder:  # it has lines to send
        client.close()
    if leader:
        leader.join(lambda: _is_interrupted(inbox))
        if leader.refused:
            events.emit("refused", connections=leader.refused)
    if output:
        output.close()
    if limits:
        outcome = _closed(limits, outcome, paths, began if restarts else None)
    return outcome


def _closed(limits: Limits, outcome: HostOutcome, paths: Paths, began: float | None) -> HostOutcome:
    """The outcome of the leader, which is final if the job has failed in the same way as in the previous attempt.

    Args:
        began: when this attempt began; None if no other attempt follows its failure.
    """
    failure = outcome.failure
    is_failed = failure is not None and failure.failure_class not in NO_FAULT
    if failure is None or not is_failed or began is None:
        limits.close(completed=outcome.status == JobStatus.COMPLETED, failed=is_failed)
        return outcome
    from cloudtrain.runtime.diagnose.recurrence import cause_of, happened_twice
    from cloudtrain.runtime.ending import last_step

    step = last_step(paths, began)
    cause = cause_of(failure, step)
    if not limits.close(completed=False, failed=True, cause=cause, step=step):
        return outcome
    why = f"It does not restart: {happened_twice(cause, step)}."
    return replace(
        outcome, is_final=True, failure=replace(failure, hint=" ".join(filter(None, [failure.hint, why])))
    )


def _is_interrupted(inbox: Inbox) -> bool:
    """Whether a signal to end has arrived. Takes all other messages out of the inbox."""
    while not inbox.empty():
        if inbox.get()["type"] in ("signal", "orphaned"):
            return True
    return False


def _clean(paths: Paths) -> Paths:
    """Remove the files of an earlier attempt in the same folders, and create missing folders.

    Returns the paths with a new run folder, so that ranks of an earlier runtime never use the files of this one.
    """
    shutil.rmtree(paths.run, ignore_errors=True)
    paths = replace(paths, run_name=os.urandom(4).hex())
    for mark in (paths.failure, paths.failure_report, paths.success):
        mark.unlink(missing_ok=True)
    paths.make()
    Reserve(paths.output, SPARES).keep()
    return paths
