"""The search for runs on an MLflow server: bounded, and no other server receives anything.

The answers are those of mlflow 3.17.2; tests/soak has the server itself.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.runtime.inputs.mlflow_runs import MlflowRuns, _trust, continued


class Site(ThreadingHTTPServer):
    """Answers each path with what is in ``answers``, and records what it was sent."""

    daemon_threads = True

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.received: list[tuple[str, str | None, dict[str, Any]]] = []

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.path.rpartition("mlflow/")[2]
        self.server.received.append((name, self.headers["Authorization"], body))
        answer = self.server.answers.get(name)
        if isinstance(answer, list):
            answer = answer.pop(0)
        if callable(answer):
            answer(self)
            return
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site({"experiments/search": {"experiments": [{"experiment_id": "0"}, {"experiment_id": "7"}]}})
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def run(name: str, started: int, **tags: str) -> dict[str, Any]:
    """A run as the server describes it, of rank 0 in the first attempt."""
    given = {
        "cloudtrain.rank": "rank0",
        "cloudtrain.attempt": "0",
        **{k.replace("__", "."): v for k, v in tags.items()},
    }
    return {
        "info": {"run_id": name, "start_time": started, "experiment_id": "7"},
        "data": {"tags": [{"key": key, "value": value} for key, value in given.items()]},
    }


def search(site: Site, **environ: str) -> tuple[dict[str, str], list[str]]:
    warnings: list[str] = []
    given = {"MLFLOW_RUN_ID": "auto", "MLFLOW_TRACKING_URI": site.uri, **environ}
    found = MlflowRuns("job-1", given, warnings.append).get()
    return dict(found), warnings


def test_the_runs_of_all_ranks_in_all_experiments(site: Site) -> None:
    site.answers["runs/search"] = [
        {"runs": [run("a", 1), run("b", 2, cloudtrain__rank="rank1")], "next_page_token": "next"},
        {"runs": [run("c", 3, cloudtrain__attempt="1"), run("d", 4, mlflow__parentRunId="a")]},
    ]
    assert search(site) == ({"rank0": "c", "rank1": "b"}, [])
    (_, _, query), (_, _, more) = site.received[1:]
    assert query["experiment_ids"] == ["0", "7"]
    assert query["filter"] == "tags.`cloudtrain.run_id` = 'job-1'"
    assert more["page_token"] == "next"


def test_a_job_without_runs(site: Site) -> None:
    site.answers["runs/search"] = {}
    assert search(site) == ({}, [])


def test_a_rank_that_began_several_runs_in_one_attempt_continues_none() -> None:
    runs = [run("fold-0", 1), run("fold-1", 2), run("only", 3, cloudtrain__rank="rank1")]
    assert continued(runs) == {"rank1": "only"}


def test_ranks_in_several_experiments_continue_none() -> None:
    """When two processes create an experiment, MLflow's client lets one of them log to the default experiment."""
    other = run("b", 2, cloudtrain__rank="rank1")
    assert continued([run("a", 1), other]) == {"rank0": "a", "rank1": "b"}
    other["info"]["experiment_id"] = "0"
    assert continued([run("a", 1), other]) == {}


@pytest.mark.parametrize("name", ["../../secret", "a b", "", "x" * 100])
def test_an_id_that_is_not_one_is_left_out(name: str) -> None:
    assert continued([run(name, 1)]) == {}


@pytest.mark.parametrize(
    "environ",
    [
        {"MLFLOW_RUN_ID": ""},
        {"MLFLOW_RUN_ID": "mine"},
        {"MLFLOW_RUN_CONTEXT": "{}"},
        {"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"},
    ],
)
def test_the_choice_of_the_user_is_not_searched_for(site: Site, environ: dict[str, str]) -> None:
    assert search(site, **environ) == ({}, [])
    assert site.received == []


def test_the_credentials_that_mlflow_reads(site: Site) -> None:
    site.answers["runs/search"] = {}
    pair = "Basic " + base64.b64encode(b"me:s3cret/word").decode()
    with_user = site.uri.replace("//", "//me:s3cret%2Fword@")
    search(site, MLFLOW_TRACKING_URI=with_user)
    search(site, MLFLOW_TRACKING_USERNAME="me", MLFLOW_TRACKING_PASSWORD="s3cret/word")
    search(site, MLFLOW_TRACKING_TOKEN="t0ken")
    assert [sent for name, sent, _ in site.received if name == "runs/search"] == [pair, pair, "Bearer t0ken"]


def _redirect(handler: Handler) -> None:
    handler.send_response(302)
    handler.send_header("Location", f"{handler.server.uri}/api/2.0/mlflow/elsewhere")
    handler.end_headers()


def _hang(_handler: Handler) -> None:
    time.sleep(60)


def _drip(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(240):
        handler.wfile.write(b" ")
        time.sleep(0.5)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (_redirect, "302"),
        (b"<html>", "JSONDecodeError"),
        ({"runs": [{"info": None}]}, "TypeError"),
        ({"runs": 5}, "TypeError"),
        (_hang, "did not answer within"),
        (_drip, "did not answer within"),
    ],
)
def test_a_server_that_fails_is_left_alone(site: Site, answer: Any, problem: str) -> None:
    site.answers["runs/search"] = answer
    warnings: list[str] = []
    uri = site.uri.replace("//", "//me:s3cretword@")
    began = time.monotonic()
    environ = {"MLFLOW_RUN_ID": "auto", "MLFLOW_TRACKING_URI": uri}
    assert MlflowRuns("job-1", environ, warnings.append).get(1.0) == {}
    assert time.monotonic() - began < 50
    (warning,) = warnings
    assert problem in warning and "s3cretword" not in warning
    assert [name for name, _, _ in site.received] == ["experiments/search", "runs/search"]


def test_authorities_may_be_a_folder_as_for_requests(tmp_path: Path) -> None:
    assert _trust({"REQUESTS_CA_BUNDLE": str(tmp_path)}).cert_store_stats()["x509_ca"] == 0
