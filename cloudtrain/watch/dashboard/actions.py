"""Actions that a user starts on the page of a job, and the resubmission of its request."""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudtrain.errors import PlatformError
from cloudtrain.history.parameters import facts_of_request, owner
from cloudtrain.job import Job
from cloudtrain.platforms import Platform, Preemption, Request, Requests, Stacks
from cloudtrain.platforms.request_diff import fields
from cloudtrain.spec.names import new_job_name
from cloudtrain.spec.secrets import REDACTED, secret_values
from cloudtrain.submission import hand_over
from cloudtrain.watch.dashboard.parts import stacks
from cloudtrain.watch.report.document import Section


def stop(job: Job) -> str:
    """Stop the job. Like every action, returns a message about what happens now, and may raise PlatformError or
    StorageError."""
    status = job.status
    if status.is_final:
        return f"The job has ended: {status}."
    job.stop()
    return "The job is stopping: its ranks get SIGTERM, and have their stop_grace to exit."


def preempt(job: Job) -> str:
    job.preempt()
    return "The job is preempted. It restarts when its ranks have ended."


def download(job: Job) -> str:
    """Download into a folder with the job's name, below the folder in which the dashboard was started."""
    paths = job.download(Path.cwd() / job.name)
    return f"Downloaded on the machine of the dashboard: {', '.join(map(str, paths))}"


ACTIONS: Mapping[str, Callable[[Job], str | Section]] = {
    "stop": stop, "preempt": preempt, "download": download, "stacks": stacks,
}  # fmt: skip


def possible(job: Job, *, is_final: bool) -> list[str]:
    """The actions that a job supports in its present state."""
    if is_final:
        return ["download"]
    abilities = {"preempt": Preemption, "stacks": Stacks}
    return ["stop", *(name for name, kind in abilities.items() if isinstance(job.platform, kind))]


MOST_SHOWN = 20
"""Requests that can be confirmed; older ones have to be shown again."""
NAMES = ("job_name", "sagemaker_job_name", "TrainingJobName")
"""The fields that contain the name of the job."""
OF_THE_SCRIPT = re.compile(r"(hyperparameters|HyperParameters|arguments|environment|Environment)\b")
"""Fields of the script, in which a text that happens to equal the name is not replaced."""


def again(platform: Platform, name: str) -> Request:
    """The request of a job under a new name. Raises PlatformError, and InvalidJob if a secret is missing."""
    if not isinstance(platform, Requests):
        raise PlatformError(f"the platform {platform.name} does not keep the requests of its jobs")
    body = platform.request(name).body
    new = new_job_name(re.sub(r"-\d{8}-\d{6}-\w+$", "", name))
    renamed = _renamed(body, name, new)
    left = [path for path, value in fields(renamed) if _has(value, name) and not OF_THE_SCRIPT.match(path)]
    if left:
        raise PlatformError(
            f"the request of {name} has its name in {left[0]}: it cannot be submitted under another one",
            hint="Submit the job file again: cloudtrain submit job.yaml",
        )
    environment = body.get("environment") or body.get("Environment") or {}
    hidden = [key for key, value in environment.items() if value == REDACTED]
    hidden += filter(None, (body.get("settings") or {}).get("hidden_variables", "").split(","))
    return Request(platform.name, new, renamed, secret_values([*dict.fromkeys(hidden)], os.environ))


def _renamed(value: Any, old: str, new: str, key: str = "") -> Any:
    """``value`` with the new name in the fields for names and in the paths of URIs."""
    if isinstance(value, Mapping):
        return {name: _renamed(item, old, new, name) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_renamed(item, old, new, key) for item in value]
    if isinstance(value, str) and key in NAMES:
        return value.replace(old, new) if value in (old, f'"{old}"') else value
    if isinstance(value, str) and key.lower().endswith(("uri", "path")):
        return "/".join(new if part == old else part for part in value.split("/"))
    return value


def _has(value: Any, name: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", str(value)) is not None


class Shown:
    """The requests that were shown, each with a token with which it can be submitted once. Thread-safe."""

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}
        self._lock = threading.Lock()

    def add(self, request: Request) -> str:
        """The token for a request that is about to be shown."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._requests[token] = request
            while len(self._requests) > MOST_SHOWN:
                del self._requests[next(iter(self._requests))]
        return token

    def submit(self, platform: Platform, token: str) -> Job:
        """Submit the request with this token. Raises PlatformError if there is none."""
        with self._lock:
            request = self._requests.pop(token, None)
        if request is None or request.platform != platform.name:
            raise PlatformError("this request was submitted already, or was shown long ago: show it again")
        facts, parameters = facts_of_request(request.body)
        return hand_over(platform, replace(request), {**facts, "owner": owner()}, parameters)
