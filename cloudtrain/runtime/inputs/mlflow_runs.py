"""Finds the runs of a job's earlier attempts on an MLflow server, so that later attempts can continue them.

MLflow chooses the IDs of runs itself, and takes tags from ``MLFLOW_RUN_CONTEXT``: the first attempt of a job starts its
run in the experiment that its script chooses, and later attempts find the run by its tags. No run is created in
advance, because a script fails if it chooses a different experiment than that of the given run. In a continued run, a
script also fails if it logs a parameter with a different value. Therefore runs are continued only if the user requests
it with ``MLFLOW_RUN_ID=auto``.

The search runs while the host prepares, and has a time limit. If the server does not respond, the ranks start new runs.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable
from urllib.parse import unquote, urlsplit, urlunsplit

from cloudtrain._secrets.urls import hide_credentials
from cloudtrain._system.patterns import pattern
from cloudtrain.contract.trackers import ATTEMPT_TAG, RANK_TAG, RUN_TAG, wants_mlflow_run
from cloudtrain.runtime.http_opener import make_opener

PATIENCE = 20.0
"""The time limit of the whole search, in seconds."""
MOST_PAGES = 5
PAGE = 1000
MOST_BYTES = 16 * 1024 * 1024
"""The most bytes of one response."""
_ID = pattern(r"[\w-]{1,64}")
_IDENTITY = pattern(r"[\w.-]+")
"""IDs that can be quoted in a filter without escapes."""


class MlflowRuns:
    """The search for the runs of a job. It starts immediately if the job uses an MLflow server."""

    def __init__(self, run_id: str, environ: Mapping[str, str], warn: Callable[[str], object]) -> None:
        self._found: dict[str, str] = {}
        self._warn = warn
        self._problem = f"did not answer within {PATIENCE:g} s"
        self._uri = environ.get("MLFLOW_TRACKING_URI", "")
        self._thread: threading.Thread | None = None
        self._done = threading.Event()
        if is_wanted(run_id, environ):
            self._thread = threading.Thread(target=self._search, args=(run_id, dict(environ)), daemon=True)
            self._thread.start()

    def _search(self, run_id: str, environ: Mapping[str, str]) -> None:
        try:
            self._found = continued(_Server(environ).runs(run_id))
            self._problem = ""
        except Exception as error:  # the response of the server may be invalid in any way
            self._problem = (
                f"cannot be searched ({type(error).__name__}: {hide_credentials(str(error))[:200]})"
            )
        self._done.set()

    def get(self, patience: float = PATIENCE) -> Mapping[str, str]:
        """The ID of the run to continue for each rank that has one, by `RANK_TAG`. Waits up to ``patience`` seconds."""
        if self._thread is None:
            return {}
        if not self._done.wait(patience) or self._problem:
            place = hide_credentials(self._uri)
            self._warn(f"MLflow at {place} {self._problem}: a restarted job begins another run there")
            return {}
        return self._found


def is_wanted(run_id: str, environ: Mapping[str, str]) -> bool:
    """Whether to continue the job's runs, and it is possible to find them on a server by cloudtrain's tags."""
    return (
        wants_mlflow_run(environ)
        and environ.get("MLFLOW_TRACKING_URI", "").startswith(("http://", "https://"))
        and "MLFLOW_RUN_CONTEXT" not in environ
        and _IDENTITY.fullmatch(run_id) is not None
    )


def continued(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The run that each rank continues, which is its newest one. Excludes ranks that started several in one attempt.

    Empty if the runs are in several experiments, because the script may choose a different one the next time.

    Args:
        runs: the server's descriptions of the runs, oldest first. Nested runs are ignored.
    """
    attempts: dict[str, dict[str, list[str]]] = {}
    experiments = set()
    for run in runs:
        tags = {tag["key"]: tag.get("value", "") for tag in run["data"].get("tags", ())}
        found = run["info"]["run_id"]
        if RANK_TAG in tags and "mlflow.parentRunId" not in tags and _ID.fullmatch(found):
            experiments.add(run["info"]["experiment_id"])
            attempt = tags.get(ATTEMPT_TAG, "")
            attempts.setdefault(tags[RANK_TAG], {}).setdefault(attempt, []).append(found)
    if len(experiments) > 1:
        return {}
    return {
        rank: [*found.values()][-1][0]
        for rank, found in attempts.items()
        if all(len(same) == 1 for same in found.values())
    }


class _Server:
    """An MLflow server, with the settings that MLflow's own client reads."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        parts = urlsplit(environ["MLFLOW_TRACKING_URI"])
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        user, password = (
            environ.get("MLFLOW_TRACKING_USERNAME", user),
            environ.get("MLFLOW_TRACKING_PASSWORD", password),
        )
        host = parts.netloc.rpartition("@")[2]
        self._uri = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Content-Type": "application/json"}
        if user:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        elif environ.get("MLFLOW_TRACKING_TOKEN"):
            self._headers["Authorization"] = f"Bearer {environ['MLFLOW_TRACKING_TOKEN']}"
        self._opener = make_opener(_trust(environ) if parts.scheme == "https" else None)

    def runs(self, run_id: str) -> list[Mapping[str, Any]]:
        """All runs with the ID of the job, in all experiments, oldest first."""
        found: list[Mapping[str, Any]] = []
        query = {"filter": f"tags.`{RUN_TAG}` = '{run_id}'", "order_by": ["attributes.start_time ASC"]}
        for experiments in self._pages("experiments/search", "experiments", {}):
            places = [one["experiment_id"] for one in experiments]
            for runs in self._pages("runs/search", "runs", {**query, "experiment_ids": places}):
                found += runs
        return sorted(found, key=lambda run: int(run["info"]["start_time"]))

    def _pages(self, path: str, name: str, query: Mapping[str, Any]) -> Iterator[list[Any]]:
        token = ""
        for _ in range(MOST_PAGES):
            answer = self._post(
                path, {**query, "max_results": PAGE, **({"page_token": token} if token else {})}
            )
            if answer.get(name):
                yield answer[name]
            token = answer.get("next_page_token", "")
            if not token:
                return

    def _post(self, path: str, query: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self._uri}/api/2.0/mlflow/{path}", json.dumps(query).encode(), self._headers, method="POST"
        )
        with self._opener.open(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read(MOST_BYTES))


def _trust(environ: Mapping[str, str]) -> ssl.SSLContext:
    if environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1"):
        return ssl._create_unverified_context()
    authorities = environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or environ.get("REQUESTS_CA_BUNDLE")
    if authorities and os.path.isdir(authorities):
        return ssl.create_default_context(capath=authorities)
    return ssl.create_default_context(cafile=authorities or None)
