"""Writes how this host ended to the file that its platform reads, such as a pod's termination message."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.contract import FailureReport, Paths, Settings
from cloudtrain.contract.settings import HIDDEN_VARIABLES, PREFIX
from cloudtrain.runtime.outcome import HostOutcome

if TYPE_CHECKING:
    from cloudtrain.contract.ending import Ending
    from cloudtrain.observe import Summary

TERMINATION_MESSAGE = f"{PREFIX}TERMINATION_MESSAGE"
"""The variable of `Settings.termination_message`. It is read directly, because another setting may be invalid."""


def write_ending(outcome: HostOutcome, paths: Paths, started_at: float, environ: Mapping[str, str]) -> None:
    """Write the `Ending` of this host, if a setting names a file for it. Never raises an OSError.

    Args:
        paths: the paths of this host, with its events.
        started_at: when the runtime started, in seconds since the epoch. Earlier events are of another attempt.
        environ: contains the settings, and the variables whose values are hidden.
    """
    path = environ.get(TERMINATION_MESSAGE)
    if not path:
        return
    hider = ValueHider.of_variables(environ.get(HIDDEN_VARIABLES, "").split(","), environ)
    text = make_ending(outcome, paths, started_at, hider).to_json()
    with contextlib.suppress(OSError):
        # in place: the file is a mount, which cannot be replaced
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with open(descriptor, "wb") as file:
            file.write(text.encode())


def make_ending(outcome: HostOutcome, paths: Paths, started_at: float, hider: ValueHider) -> Ending:
    """The ending of this host, without the values that ``hider`` hides."""
    from cloudtrain.contract.ending import STEPS, Ending
    from cloudtrain.observe import Summary  # most hosts do not write an ending

    summary = Summary()
    last = started_at
    with contextlib.suppress(OSError, ValueError):
        last = _read(paths, started_at, summary)
    goodput = summary.meter.result(started_at, max(last, started_at + 0.001), last)
    steps = summary.steps.result(last, is_running=False)
    failure = outcome.failure
    return Ending(
        status=outcome.status,
        failure=FailureReport.from_dict(hider.hide_all(failure.to_dict())) if failure else None,
        phases=summary.phases,
        metrics={hider.hide_all(name): value for name, value in summary.metrics.items()},
        steps={name: steps[name] for name in STEPS if steps[name] is not None},
        goodput=asdict(goodput) if goodput else {},
        warnings=tuple(hider.hide_all(summary.warnings)),
        uploaded=hider.hide_all(summary.uploaded),
    )


def last_step(paths: Paths, started_at: float) -> int | None:
    """The last step that a rank of this host has reported since ``started_at``; None if it is unknown."""
    from cloudtrain.observe import Summary

    summary = Summary()
    with contextlib.suppress(OSError, ValueError):
        _read(paths, started_at, summary)
    return summary.last_step


def _read(paths: Paths, started_at: float, summary: Summary) -> float:
    """Add the events since ``started_at``; returns the time of the last one. Raises OSError."""
    from cloudtrain.runtime.event_printer import NewEvents

    summary.add({"event": "attempt", "time": started_at})
    last = started_at
    for events in NewEvents(paths).read():
        for event in events:
            time = event.get("time", 0.0)
            if time >= started_at:
                summary.add(event)
                last = max(last, time)
    return last


def restart_exit_code(environ: Mapping[str, str]) -> int:
    """`Settings.restart_exit_code`, even if another setting is invalid; 0 if this one is."""
    name = f"{PREFIX}RESTART_EXIT_CODE"
    with contextlib.suppress(ValueError):
        return Settings.from_environ({name: environ[name]} if name in environ else {}).restart_exit_code
    return 0
