"""Shows which notifications of a job have not arrived."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from cloudtrain.contract import JobStatus
from cloudtrain.platforms.supervised.root import JobFiles, LocalRoot
from cloudtrain.runtime.notifications.outbox import NOTIFICATIONS, NOTIFICATIONS_BEAT, Outbox, parse_outbox
from cloudtrain.runtime.notifications.rules import rules_of
from cloudtrain.runtime.supervisor.notifications import end_notification
from cloudtrain.runtime.supervisor.record import JobRecord

SILENT_SECONDS = 120.0
"""How long a running job's courier may give no heartbeat before it is considered killed or paused."""
SOON_SECONDS = 60.0
"""How long a notification may wait for its first try before a warning that nothing sends it."""


def notification_warnings(
    job: JobFiles, platform: str, record: JobRecord, body: Mapping[str, Any], now: float | None
) -> tuple[list[str], bool]:
    """Warnings, of one sentence each, about notifications that have not arrived, and about a killed or paused courier.

    Also returns whether the warnings may still change.

    Args:
        now: a time at which the job was alive, on its clock; None if there is none.
    """
    rules = rules_of(body)
    if not rules:
        return [], False
    found = parse_outbox(job.read(NOTIFICATIONS))
    if record.status.is_final:
        end = end_notification(job.name, platform, record)
        found.notifications.setdefault(end.key, end)
    due = found.due(rules)
    silent = 0.0 if now is None else _silent_seconds(job, now)
    has_sender = (
        isinstance(job.root, LocalRoot)
        and Outbox(job.root.path / job.name).has_sender
        and silent < SILENT_SECONDS
    )
    warnings = _silence(job, record, silent)
    for notification, number in due:
        failed, kind = found.failed.get((notification.key, number)), rules[number].kind
        what = f"the notification that {notification.title} has not arrived ({kind})"
        if failed:
            more = (
                "it is tried again"
                if has_sender and failed.again
                else f"send it with: cloudtrain notify {job.name}"
            )
            warnings.append(f"{what}: {failed.error}; {more}")
        elif not has_sender and time.time() - notification.time > SOON_SECONDS:
            warnings.append(
                f"{what}: what sends it is gone or paused; send it with: cloudtrain notify {job.name}"
            )
    return warnings, bool(due)


def _silent_seconds(job: JobFiles, now: float) -> float:
    """Seconds since the courier's last heartbeat; 0 for a courier of an earlier release, which has none."""
    beat = job.read(NOTIFICATIONS_BEAT).strip()
    return now - float(beat) if beat.isdigit() else 0.0


def _silence(job: JobFiles, record: JobRecord, silent: float) -> list[str]:
    """A warning about a courier that was killed or paused while the job runs."""
    if record.status != JobStatus.RUNNING or silent < SILENT_SECONDS:
        return []
    minutes = silent / 60
    return [
        f"the process that sends the notifications of this job has given no sign of life for {minutes:.0f} min: it was"
        f" killed or paused; send those that are due with: cloudtrain notify {job.name}"
    ]
