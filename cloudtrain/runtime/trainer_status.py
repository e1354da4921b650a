"""Reports the metrics and the progress of a job to Kubeflow Trainer, which shows them in the status of the TrainJob.

Its feature ``TrainJobStatus`` (proposal 2779) gives each container a URL, a CA certificate, and a token. Each report
replaces the previous one, so the next report contains everything in a failed one.
"""

from __future__ import annotations

import contextlib
import json
import math
import ssl
import threading
import urllib.request
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.contract import JobStatus
from cloudtrain.contract.trackers import TRAINER_CA_FILE, TRAINER_TOKEN_FILE, TRAINER_URL
from cloudtrain.observe import steady
from cloudtrain.observe.events import Event
from cloudtrain.observe.goodput import KINDS
from cloudtrain.observe.step_meter import StepMeter
from cloudtrain.runtime.event_printer import NewEvents
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.http_opener import make_opener

INTERVAL = 10.0
"""Seconds between two reports."""
TIMEOUT = 5.0
"""How long a report may wait for the server."""
MOST_METRICS = 256
LONGEST_NAME = 64
"""In characters. `MOST_METRICS` and this are limits of the API."""
STEP = "step"
"""The name under which the number of the last training step is reported."""


def is_wanted(config: HostConfig, environ: Mapping[str, str]) -> bool:
    """Whether this host reports, because it is the leader of a TrainJob, and the feature is enabled."""
    return config.host.leads and environ.get(TRAINER_URL, "").startswith("https://")


class TrainerStatus:
    """Reports the progress, and the last value of each metric of this host, every `INTERVAL` seconds and at the end.

    A context manager.

    Errors never affect the job, which continues without its status.
    """

    def __init__(self, config: HostConfig, environ: Mapping[str, str]) -> None:
        self._url = environ[TRAINER_URL]
        self._ca = environ.get(TRAINER_CA_FILE, "")
        self._token = Path(environ.get(TRAINER_TOKEN_FILE, ""))
        self._events = NewEvents(config.paths)
        self._hider = ValueHider.of_variables(config.settings.hidden_variables.split(","), environ)
        self._metrics: dict[str, str] = {}
        self._steps = StepMeter()
        self._completed = False
        self._sent: object = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainer-status", daemon=True)

    def __enter__(self) -> TrainerStatus:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Report the last values. Takes at most about two times `TIMEOUT`."""
        self._ended.set()
        self._thread.join(2 * TIMEOUT)

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(INTERVAL)
            try:
                self._report()
            except (OSError, ValueError):  # the errors of urllib, http and ssl are OSErrors or ValueErrors
                continue

    def _report(self) -> None:
        """Send the status if it has changed. Raises OSError or ValueError."""
        for events in self._events.read():
            for event in events:
                self._add(event)
        status: dict[str, Any] = {}
        if self._metrics:
            status["metrics"] = [{"name": name, "value": value} for name, value in self._metrics.items()]
        steps = self._steps.result(steady.now(), is_running=True)
        if steps["progress"] is not None:
            status["progressPercentage"] = int(100 * steps["progress"])
        if steps["remaining_seconds"] is not None:
            status["estimatedRemainingSeconds"] = int(steps["remaining_seconds"])
        if self._completed:
            status |= {"progressPercentage": 100, "estimatedRemainingSeconds": 0}
        if status and status != self._sent:
            self._send(status)
            self._sent = status

    def _add(self, event: Event) -> None:
        kind = event["event"]
        if kind in KINDS:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                self._steps.add(event)
        if kind == "metric":
            self._set(str(self._hider.hide_all(event)["name"]), event["value"])
        elif kind == "step" and event.get("step") is not None:
            self._set(STEP, event["step"])
        elif kind == "outcome":
            self._completed = event.get("status") == JobStatus.COMPLETED

    def _set(self, name: str, value: float) -> None:
        name = name[:LONGEST_NAME]
        if name and (name in self._metrics or len(self._metrics) < MOST_METRICS):
            self._metrics[name] = repr(value) if math.isfinite(value) else str(value)

    def _send(self, status: Mapping[str, Any]) -> None:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = json.dumps({"trainerStatus": {**status, "lastUpdatedTime": now}}).encode()
        token = self._token.read_text(encoding="ascii").strip()  # the kubelet renews it
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")
        trusted = ssl.create_default_context(cafile=self._ca)
        opener = make_opener(trusted, proxies=False)  # a Service of the cluster is not behind a proxy
        opener.open(request, timeout=TIMEOUT).close()
