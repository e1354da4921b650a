"""Notifications sent by the client: those that a supervisor could not send, those of jobs without one, and tests."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtrain.errors import PlatformError
from cloudtrain.job import Job
from cloudtrain.platforms import Notifications, Requests
from cloudtrain.runtime.notifications.delivery import Delivery
from cloudtrain.runtime.notifications.notification import Notification
from cloudtrain.runtime.notifications.outbox import SILENT_SECONDS, Outbox, Signs
from cloudtrain.runtime.notifications.rules import Rule, rules_of
from cloudtrain.runtime.notifications.send import NotSent, send
from cloudtrain.runtime.supervisor.notifications import end_notification
from cloudtrain.storage import state_home

TRIES = 3
"""The most attempts to send a notification to one place."""
MOST_SECONDS = 120.0
PATIENCE = SILENT_SECONDS
"""Seconds to wait for another process that is sending, such as the job's courier. A paused one is replaced then."""


@dataclass(frozen=True)
class Result:
    """The outcome of one notification for one place."""

    event: str
    kind: str
    """The kind of the place: one of `rules.TARGETS`."""
    error: str
    """Why the notification has not arrived; empty if it has."""


def rules_of_job(job: Job, given: Sequence[Rule]) -> Sequence[Rule]:
    """The job's own rules, or those ``given`` if it has none. Raises PlatformError if there are both or none."""
    body: Mapping[str, Any] = {}
    if isinstance(job.platform, Requests):
        body = job.platform.request(job.name).body
    own = rules_of(body)
    if own and given:
        raise PlatformError(f"job {job.name} has its own rules", hint="Leave out --with.")
    if not own and not given:
        raise PlatformError(
            f"job {job.name} has no field notify",
            hint="Name a job file that has one, or one for all jobs in the config file: --with notify.yaml",
        )
    return own or given


def send_notifications(
    job: Job, rules: Sequence[Rule], environ: Mapping[str, str] = os.environ
) -> list[Result]:
    """Send the notifications of a job that have not arrived, each up to `TRIES` times, and return their results.

    Raises PlatformError if another process is sending them, or if they are on another machine.
    """
    outbox = Outbox(_outbox_folder(job))
    deadline, signs = time.monotonic() + PATIENCE, _signs(outbox)
    while True:
        with outbox.held() as is_held:
            due = _due(job, outbox, rules, post=is_held)
            if not due:
                return []
            if is_held:
                Delivery(outbox, rules, environ, most_tries=TRIES).run(MOST_SECONDS)
                found = outbox.read()
                break
        if time.monotonic() > deadline:
            if signs and outbox.take_over(signs):
                continue
            raise PlatformError(
                f"another process sends the notifications of job {job.name} now",
                hint=f"See what has not arrived yet: cloudtrain describe {job.name}",
            )
        time.sleep(0.2)
    results = []
    for notification, number in due:
        place = (notification.key, number)
        failed = found.failed.get(place)
        error = "" if place in found.sent else failed.error if failed else "it took too long"
        results.append(Result(notification.event, rules[number].kind, error))
    return results


def send_test(rules: Sequence[Rule], environ: Mapping[str, str] = os.environ) -> list[Result]:
    """Send a test notification to the place of each rule, once."""
    host = socket.gethostname()
    results = []
    for rule in rules:
        now = time.time()
        key = f"test/{now:.6f}"
        notification = Notification.of(
            key, "test", "example", "local", 0, now, summary=f"sent from {host}: this rule works"
        )
        error = ""
        try:
            send(rule, notification, environ)
        except NotSent as failed:
            error = str(failed)
        results.append(Result("test", rule.kind, error))
    return results


def _due(job: Job, outbox: Outbox, rules: Sequence[Rule], *, post: bool) -> list[tuple[Notification, int]]:
    """The notifications that have not arrived, with that of the job's end. ``post``: add it to the outbox."""
    description, found = job.describe(), outbox.read()
    if description.status.is_final:
        end = end_notification(job.name, description.platform, description)
        if end.key not in found.notifications:
            found.notifications[end.key] = end
            if post:
                outbox.post(end)
    return found.due(rules)


def _signs(outbox: Outbox) -> Signs | None:
    """None if nothing has been sent yet, or only by a process of an earlier version, which has no heartbeat."""
    with contextlib.suppress(FileNotFoundError):
        return outbox.signs()
    return None


def _outbox_folder(job: Job) -> Path:
    if isinstance(job.platform, Notifications):
        return job.platform.outbox(job.name)
    folder = state_home() / "notifications" / job.platform.name / job.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
