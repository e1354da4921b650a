"""Sends the notifications of a job from its leader if the job has no supervisor, as on Kubernetes.

The notification of the end is sent at the end of each attempt, which it delays by seconds; notifications of hangs are
sent from a thread during the attempt. One that does not arrive becomes a warning. A pod that is killed, or whose node
is lost, sends nothing.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable

from cloudtrain.contract import JobStatus, Paths
from cloudtrain.contract.documents import parse_json
from cloudtrain.link.secret import VARIABLE
from cloudtrain.observe import EventLog, steady
from cloudtrain.observe.hanging import MOST_CALLS, MOST_HANGS, Hanging
from cloudtrain.runtime.ending import restart_exit_code
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.job_secret import job_identity
from cloudtrain.runtime.notifications.delivery import Delivery
from cloudtrain.runtime.notifications.notification import Notification
from cloudtrain.runtime.notifications.outbox import Outbox
from cloudtrain.runtime.notifications.rules import HOLD_SECONDS, Rule, hold_seconds, rules_of
from cloudtrain.runtime.outcome import HostOutcome

_ENDED = "its pods got a signal to end: they are evicted, or the job is stopped"


def notify_end(
    outcome: HostOutcome,
    paths: Paths,
    environ: Mapping[str, str],
    started_at: float,
    is_asked_to_end: Callable[[], bool],
) -> None:
    """Send the notification of this attempt's end, if this host leads. Never raises an error.

    Args:
        environ: this process's initial environment, with `Settings.notify` and the variables that its rules refer to.
        started_at: when this process was started, in seconds since the epoch.
        is_asked_to_end: whether this process has received a signal to end. If so, it waits `HOLD_SECONDS` at most.
    """
    with suppress(Exception):  # such as a limit of threads, which must not change the job's outcome
        config = HostConfig.read(paths, environ)
        if config.host.leads:
            event = _event(outcome, environ)
            summary = "" if outcome.failure or event != "preempted" else _ENDED
            found = _notification(
                config,
                job_identity(config.paths, environ),
                event,
                f"{started_at:.0f}",
                summary=summary,
                failure=outcome.failure,
            )

            def run(delivery: Delivery, rules: Sequence[Rule]) -> None:
                delivery.run(HOLD_SECONDS)
                delivery.run(hold_seconds(rules) - HOLD_SECONDS, is_asked_to_end)

            _send(found, config, environ, run)


class HangNotifier:
    """Sends a notification about each hang that does not end the job. Never raises an error.

    Args:
        environ: see `notify_end`.
    """

    def __init__(self, config: HostConfig, environ: Mapping[str, str]) -> None:
        self._config, self._environ = config, environ
        self._identity = job_identity(config.paths, environ)  # read now, because the secret is removed later
        self._began = steady.now()
        self._count = 0

    def __call__(self, hang: Hanging) -> None:
        self._count += 1
        if self._count > MOST_HANGS:
            return
        texts = {"summary": str(hang), "details": tuple(hang.stack.splitlines()[:MOST_CALLS])}
        number = f"{self._began:.0f}-{self._count - 1}"

        def send() -> None:
            with suppress(Exception):  # such as a full disk; the hang is recorded as an event anyway
                found = _notification(self._config, self._identity, "hanging", number, **texts)
                _send(found, self._config, self._environ, _until_late)

        with suppress(RuntimeError):  # there are too many threads
            threading.Thread(target=send, daemon=True, name="notification of a hang").start()


def _until_late(delivery: Delivery, rules: Sequence[Rule]) -> None:
    delivery.run(max(rule.retry_for for rule in rules))


def _notification(config: HostConfig, identity: str, event: str, number: str, **texts: Any) -> Notification:
    settings = config.settings
    key = f"{settings.job_name}-{identity[:16]}/{event}/{number}"
    return Notification.of(
        key, event, settings.job_name, "kubernetes", settings.attempt, steady.now(), **texts
    )


def _send(
    notification: Notification,
    config: HostConfig,
    environ: Mapping[str, str],
    run: Callable[[Delivery, Sequence[Rule]], None],
) -> None:
    """Send a notification with ``run``. If it does not arrive, emit a warning."""
    rules = rules_of({"notify": parse_json(config.settings.notify)})
    outside = {name: value for name, value in environ.items() if name != VARIABLE}
    with tempfile.TemporaryDirectory(prefix="cloudtrain-") as folder:
        outbox = Outbox(Path(folder))
        outbox.post(notification)
        hidden = config.settings.hidden_variables.split(",")
        run(Delivery(outbox, rules, outside, hidden=hidden), rules)
        found = outbox.read()
    events = EventLog(config.paths.events, config.host.current)
    for late, number in found.due(rules):
        failed = found.failed.get((late.key, number))
        why = failed.error if failed else "no answer yet"
        events.emit(
            "warning",
            message=f"the notification that {late.title} has not arrived ({rules[number].kind}): {why}",
        )


def _event(outcome: HostOutcome, environ: Mapping[str, str]) -> str:
    if outcome.status == JobStatus.COMPLETED:
        return "completed"
    restarts = restart_exit_code(environ)
    if outcome.status == JobStatus.INTERRUPTED or (restarts and outcome.exit_code_with(restarts) == restarts):
        return "preempted"
    return "stopped" if outcome.status == JobStatus.STOPPED else "failed"
