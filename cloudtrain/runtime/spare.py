"""The runtime of a spare host, which prepares the host as if it had a place in the job, and waits for its end.

The supervisor ends it with the attempt. If the host has a place in the next attempt, its data is already there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.observe import EventLog, steady
from cloudtrain.observe.events import SPARE, Event
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.inputs.preparation import Preparation
from cloudtrain.runtime.outcome import HostOutcome, phase_failure
from cloudtrain.runtime.output import say
from cloudtrain.runtime.phases import Phases
from cloudtrain.storage import retry_policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.runtime.leader_client import Inbox

WAITS = "waits"
"""The state of a prepared spare host."""


def wait_as_spare(config: HostConfig, environ: Mapping[str, str], inbox: Inbox) -> HostOutcome:
    """Prepare this host and wait. The outcome is a failure if it cannot take a place."""
    prepare(config, environ, inbox)
    outcome, name = None, config.host.current
    while outcome is None:
        message = inbox.get()
        if message["type"] == "failed":
            outcome = HostOutcome(JobStatus.FAILED, message["report"], is_announced=False)
        elif message["type"] == "orphaned":
            why = "the process that started its runtime has ended"
            outcome = HostOutcome(JobStatus.FAILED, FailureReport.host_lost(name, why, steady.now()))
        elif message["type"] == "signal":
            outcome = HostOutcome(JobStatus.INTERRUPTED)
    retry_policy.default.give_up()  # no thread may delay the end of this process
    return outcome


def prepare(config: HostConfig, environ: Mapping[str, str], inbox: Inbox) -> threading.Thread:
    """Prepare this host in a thread. If it cannot, a message ``failed`` with the ``report`` arrives in the inbox."""
    events, name = _SpareEvents(config.paths.events, config.host.current), config.host.current
    phases = Phases(events)
    hider = ValueHider.of_variables(config.settings.hidden_variables.split(","), environ)
    preparation = Preparation(_prepared_part(config), environ, phases, events, lambda error: None)

    def run() -> None:
        try:
            preparation.run()
            events.emit("phase", phase=WAITS, state="began")
            say(f"{name} is a spare host: it is ready to take the place of another one")
        except Exception as error:
            inbox.put({"type": "failed", "report": phase_failure(error, name, phases.current, hider)})

    thread = threading.Thread(target=run, name="spare", daemon=True)
    thread.start()
    return thread


def _prepared_part(config: HostConfig) -> HostConfig:
    """``config`` without inputs that depend on the place: checkpoints, shares of channels, and streams."""
    fixed = [one for one in config.inputs if one.mode == "File" and not one.is_sharded]
    channels = tuple((one.name, one.uri) for one in fixed)
    return replace(
        config, settings=replace(config.settings, checkpoint_uri="", channels=channels, spare=True)
    )


class _SpareEvents(EventLog):
    """Records the phases of a spare host as its own states, because they are not phases of the job."""

    def emit(self, event: str, **fields: Any) -> Event:
        if event == "warning":
            return super().emit(event, **fields)
        if event == "phase" and fields["state"] == "began":
            return super().emit(SPARE, state=fields["phase"])
        return {}
