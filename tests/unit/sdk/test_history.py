"""Queries of the history: conditions, names, and where the rows come from."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import warnings
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner

from cloudtrain import history
from cloudtrain._display.view import look_at
from cloudtrain.cli.list import command
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.history.ends import look
from cloudtrain.history.expression import LARGEST, InvalidQuery
from cloudtrain.history.parameters import parameters
from cloudtrain.history.predictions import keep as keep_plan, prediction
from cloudtrain.index import IndexEntry, add_job, list_jobs, remove_job
from cloudtrain.platforms import get_platform
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.platforms.supervised.root import LocalRoot
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.storage import state_home


def make_job(name: str, losses: list[float], lr: object, **changes: Any) -> JobFolder:
    """A job of this machine that has ended, as it is without an index."""
    folder = JobFolder.of("local", name)
    folder.path.mkdir(parents=True)
    request = {
        "settings": {"git_commit": "abc123"},
        "channels": {},
        "environment": {},
        "hyperparameters": {"lr": json.dumps(lr), "sagemaker_program": '"train.py"'},
        "arguments": changes.pop("arguments", []),
        "instance_type": "",
        "host_count": 2,
    }
    (folder.path / "request.json").write_text(json.dumps(request))
    with open(folder.events, "w") as file:
        for step, loss in enumerate(losses):
            event = {
                "time": step,
                "source": "a",
                "event": "metric",
                "name": "loss",
                "value": loss,
                "step": step,
            }
            file.write(json.dumps(event) + "\n")
    values = {"submitted_at": 1.0, "started_at": 2.0, "ended_at": 5.0, "exit_code": 0, **changes}
    folder.write_record(JobRecord(values.pop("status", JobStatus.COMPLETED), **values))
    return folder


@pytest.fixture
def jobs() -> None:
    make_job("slow", [0.9, 0.2, 0.5], 0.01, submitted_at=10.0, arguments=["--epochs", "5", "--val/freq=3"])
    make_job("fast", [0.8, 0.4], 0.1, submitted_at=20.0, arguments=["--epochs", "10"])
    failure = FailureReport(FailureClass.USER_ERROR, "boom", rank=1, exception_type="ValueError")
    make_job("none", [], "auto", submitted_at=30.0, status=JobStatus.FAILED, failure=failure, exit_code=1)


def test_a_look_at_an_end_reads_the_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind ssh, each read is a round trip."""
    make_job("once", [0.5], 0.01)
    reads: list[str] = []
    read = LocalRoot.read
    monkeypatch.setattr(LocalRoot, "read", lambda root, path: reads.append(path) or read(root, path))
    platform = get_platform("local")
    description = platform.describe("once")
    before = len(reads)
    seen = look(platform, description, "")
    assert (seen.job.script, seen.job.parameters) == ("train.py", {"lr": "0.01"})
    assert reads.count("once/request.json") == 1 and len(reads) == before
    assert "request" not in description.to_dict()


def test_how_wrong_a_plan_was_stays_after_clean_has_removed_the_job() -> None:
    """No client has looked at the job before."""
    from cloudtrain.cli import cli

    make_job("planned", [0.5], 0.01)  # took 3 s
    keep_plan(
        "planned", "local", {"seconds": {"low": 1, "expected": 6, "high": 9}, "cost": None, "currency": None}
    )
    cleaned = CliRunner().invoke(cli, ["clean", "--jobs-older-than", "1h"])
    assert cleaned.exit_code == 0 and "planned" in cleaned.output
    assert not JobFolder.of("local", "planned").path.exists()
    [job] = history.query("plan_error > 0.9")
    assert (job.name, job.plan_error, job.plan_cost_error, job.metrics["loss"].last) == (
        "planned",
        1.0,
        None,
        0.5,
    )
    shown = CliRunner().invoke(cli, ["list", "--columns", "name,plan_error"]).stdout
    assert shown.split() == ["NAME", "PLAN_ERROR", "planned", "+100%"]
    make_job("planned", [0.5], 0.01, submitted_at=20.0)  # another one of this name, without a plan
    assert prediction(get_platform("local").describe("planned")) is None


CONDITIONS = [
    ("", ["none", "fast", "slow"]),
    ("loss < 0.45", ["fast"]),
    ("loss.min<0.3 and lr>0.001", ["slow"]),
    ("metrics.loss.max >= .9 or params.lr == 'auto'", ["none", "slow"]),
    ("not loss < 0.45", ["slow"]),
    ("loss == None", ["none"]),
    ("loss is not None and not (lr == 0.1)", ["slow"]),
    ("0.3 < loss < 0.45", ["fast"]),
    ("status in ('failed', 'Stopped')", ["none"]),
    ("status not in ['Failed']", ["fast", "slow"]),
    ("epochs == 5", ["slow"]),
    ("epochs > 5", ["fast"]),
    ("val/freq == 3", ["slow"]),
    ("params['val/freq'] == 3", ["slow"]),
    ("lr < loss", ["fast", "slow"]),
    ("failure == 'user-error' and exit_code == 1", ["none"]),
    ("commit == 'abc123' and script == 'train.py' and instance_count == 2", ["none", "fast", "slow"]),
    ("submitted < '1970-01-02' and duration == 3", ["none", "fast", "slow"]),
    ("name == 'x\\' OR 1=1 --'", []),
    ("-1 < loss", ["fast", "slow"]),
]


@pytest.mark.parametrize(("where", "expected"), CONDITIONS)
def test_a_condition_selects_jobs(where: str, expected: list[str], jobs: None) -> None:
    assert [job.name for job in history.query(where)] == expected


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "los < 1",
            "column 1: no job has .* a metric 'los'\n +Did you mean 'loss'. Known: name, ",
        ),
        ("lr>1 and métrique<2", "column 10: no job has .*'métrique'"),
        ("loss < ", "column 1: 'loss <' is not a condition"),
        ("loss", "column 1: 'loss' is not a comparison"),
        ("loss < 1/3", "column 8: '1/3' is neither a name nor a value"),
        ("__import__('os').system('x') == 0", "column 1: .* is neither a name nor a value"),
        ("[x for x in y] == 1", "column 1: .* is neither"),
        ("1 < 2", "column 1: compares a value with a value"),
        ("status == 'Done'", "column 11: there is no status 'Done'"),
        ("loss == 'low'", "column 9: loss is compared with something"),
        ("duration > 'long'", "column 12: duration is compared"),
        ("submitted > 'yesterday'", "column 13: submitted is compared"),
        ("loss < None", "column 8: None has no order"),
        ("loss in 3", "column 1: .*cannot be looked for"),
        ("loss == (1, 2)", "column 9: .* can only follow in"),
        ("loss in ()", "there is no value"),
        ("(" * 3000, "is not a condition"),
        ("not " * 2000 + "loss<1", "too many|not a condition|too deep"),
        (" or ".join(["loss<1"] * LARGEST), "too many comparisons"),
        ("x" * 20_000, "more than 10,000 characters"),
        ("loss\0<1", "is not a condition"),
        ("name == '\\ud800'", "column 9: .* has characters that are not text"),
        ("status in ('Failed', '\\0')", "column 22: .* has characters that are not text"),
        ("name == '\udcff'", "is not a condition"),
        ("loss < 1e999 and name < 'a' and lr < " + "9" * 400, "too large"),
    ],
)
def test_an_invalid_condition_is_one_error_with_its_position(where: str, message: str, jobs: None) -> None:
    with pytest.raises(InvalidQuery, match=r"^--where") as raised:
        history.query(where)
    assert re.search(message, str(raised.value), re.DOTALL), str(raised.value)
    assert [job.name for job in history.query(up_to_date=False)] in ([], ["none", "fast", "slow"])


def test_a_name_of_a_parameter_and_a_metric_has_to_say_which(jobs: None) -> None:
    make_job("both", [0.1], 0.1, arguments=["--loss", "mse"])
    with pytest.raises(InvalidQuery, match="'loss' is a parameter and a metric") as raised:
        history.query("loss == 'mse'")
    assert raised.value.hint == "Write params.loss or metrics.loss."
    assert [job.name for job in history.query("params.loss == 'mse' and metrics.loss < 1")] == ["both"]


def test_numbers_among_texts_are_compared_as_scripts_write_them(jobs: None) -> None:
    make_job("large", [], 0.1, arguments=["--batch", "1000000"])
    make_job("exact", [], 0.1, arguments=["--batch", "0.1234567"])
    assert [job.name for job in history.query("batch in ('auto', 1000000)")] == ["large"]
    assert [job.name for job in history.query("batch in ('auto', 0.1234567)")] == ["exact"]


def test_the_sort_key_puts_jobs_without_it_last(jobs: None) -> None:
    assert [job.name for job in history.query(sort="loss")] == ["fast", "slow", "none"]
    assert [job.name for job in history.query(sort="-loss")] == ["slow", "fast", "none"]
    assert [job.name for job in history.query(sort="-epochs", limit=1)] == ["fast"]
    assert [job.name for job in history.query(sort="name")] == ["fast", "none", "slow"]
    with pytest.raises(InvalidQuery, match="--sort: no job has"):
        history.query(sort="accuracy")


def test_a_job_of_the_history_has_what_the_job_had(jobs: None) -> None:
    slow, failed = history.query("name in ('slow', 'none')", "-submitted")[::-1]
    assert slow.parameters == {"lr": "0.01", "epochs": "5", "val/freq": "3"}
    assert slow.metrics == {"loss": (0.5, 0.2, 0.9)}
    assert (slow.script, slow.git_commit, slow.instance_count, slow.duration) == (
        "train.py",
        "abc123",
        2,
        3.0,
    )
    assert (failed.status, failed.failure, failed.why) == (
        "Failed",
        "user-error",
        "rank 1 raised ValueError: boom",
    )
    assert json.loads(json.dumps(slow.to_dict()))["metrics"]["loss"] == {"last": 0.5, "min": 0.2, "max": 0.9}


def test_the_history_outlives_the_folder_of_a_job_and_is_made_again_from_folders(jobs: None) -> None:
    assert len(history.query()) == 3
    remove_job("slow", "local")
    shutil.rmtree(JobFolder.of("local", "slow").path)
    assert {entry.name for entry in list_jobs()} == {"fast", "none"}
    assert [job.name for job in history.query("loss.min < 0.3")] == ["slow"]
    (state_home() / "index.db").unlink()
    assert {job.name for job in history.query()} == {"fast", "none"}


def test_a_second_job_of_the_same_name_is_another_job(jobs: None) -> None:
    history.query()
    remove_job("slow", "local")
    shutil.rmtree(JobFolder.of("local", "slow").path)
    add_job(IndexEntry("slow", "local", 50.0))
    make_job("slow", [0.05], 1.0, submitted_at=50.0)
    assert [(job.name, job.metrics["loss"].last) for job in history.query("name == 'slow'")] == [
        ("slow", 0.05),
        ("slow", 0.5),
    ]


def test_a_job_that_runs_is_looked_at_each_time() -> None:
    folder = make_job("running", [0.5], 0.1, status=JobStatus.RUNNING, ended_at=None, exit_code=None)
    lock = folder.lock()
    assert [(job.status, job.metrics["loss"].last) for job in history.query()] == [("Running", 0.5)]
    with open(folder.events, "a") as file:
        file.write(
            '{"time": 9, "source": "a", "event": "metric", "name": "loss", "value": 0.25, "step": 9}\n'
        )
    assert [(job.status, job.metrics["loss"].last) for job in history.query("ended == None")] == [
        ("Running", 0.25)
    ]
    os.close(lock)


def test_a_query_is_answered_though_the_index_cannot_be_used(jobs: None) -> None:
    (state_home() / "index.db").symlink_to("index.db")
    with pytest.warns(UserWarning, match="only jobs with a folder or a ticket") as warned:
        assert [job.name for job in history.query("lr > 0.05")] == ["fast"]
    assert len(warned) == 1


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_query_waits_once_for_a_locked_index(
    jobs: None, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(IndexEntry("gone", "nowhere", 1.0), {"status": "Failed", "seen_at": 3.0}, {"lr": "0.07"})
    monkeypatch.setattr("cloudtrain.index.database._in_vain", set())
    waits: list[float] = []
    connect = sqlite3.connect

    def connected(*arguments: Any, timeout: float = 0.0, **options: Any) -> sqlite3.Connection:
        waits.append(timeout)
        return connect(*arguments, timeout=min(timeout, 0.2), **options)

    with closing(connect(state_home() / "index.db", isolation_level=None)) as other:
        other.execute(f"PRAGMA journal_mode = {journal}")
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", connected)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = [job.name for job in history.query("lr > 0.05")]
    assert found == {"wal": ["fast", "gone"], "delete": ["fast"]}[journal]  # a reader of a log need not wait
    assert len(warned) == (journal == "delete") and len([one for one in waits if one > 1]) <= 4
    assert [job.name for job in history.query("lr > 0.05")] == ["fast", "gone"]


def test_a_query_is_answered_though_a_later_version_has_written_the_index(jobs: None) -> None:
    add_job(IndexEntry("fast", "local", 1.0))
    with closing(sqlite3.connect(state_home() / "index.db")) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.warns(UserWarning, match="a later version of cloudtrain"):
        assert [job.name for job in history.query("lr > 0.05")] == ["fast"]


def test_a_damaged_index_is_made_again(jobs: None) -> None:
    history.query()
    with sqlite3.connect(state_home() / "index.db") as database:
        database.execute("DROP TABLE parameters")
    with pytest.warns(UserWarning, match="was damaged, and was moved"):
        history.query()
    assert [job.name for job in history.query("lr == 0.1")] == ["fast"]


def test_a_submission_is_kept_with_its_owner_and_its_parameters() -> None:
    facts = {"owner": "ann@here", "instance_type": "gpu-node", "instance_count": 4, "git_commit": "abc"}
    add_job(IndexEntry("sent", "local", 1.0), facts, {"lr": "0.1"})
    folder = make_job("sent", [0.5], 0.1)
    folder.path.joinpath("request.json").unlink()
    (sent,) = history.query("lr == 0.1")
    assert (sent.owner, sent.instance_type, sent.instance_count, sent.git_commit) == (
        "ann@here",
        "gpu-node",
        4,
        "abc",
    )


def test_secrets_are_left_out() -> None:
    found = parameters(
        {"api_key": "k1", "opt": {"b": 2}}, ["--hf-token", "hf_x", "--lr=-0.5", "-x", "-1", "--flag", "data"]
    )
    assert found == {
        "api_key": "***",
        "opt": "b=2",
        "hf-token": "***",
        "lr": "-0.5",
        "x": "-1",
        "flag": "data",
    }
    assert parameters({"a\0b": "\udcff"}, []) == {"a\ufffdb": "?"}


def test_the_command_prints_a_table_or_json(jobs: None) -> None:
    listed = CliRunner().invoke(command, ["--where", "loss<1 and lr>0", "--sort", "-loss"])
    assert listed.exit_code == 0, listed.exception
    heading, *rows = [line.split() for line in listed.stdout.splitlines()]
    assert heading == ["NAME", "PLATFORM", "STATUS", "SUBMITTED", "DURATION", "LOSS", "LR"]
    assert [(row[0], *row[-4:]) for row in rows] == [
        ("slow", "3.0", "s", "0.5", "0.01"),
        ("fast", "3.0", "s", "0.4", "0.1"),
    ]
    chosen = CliRunner().invoke(command, ["--columns", "name,val/freq,loss.min", "--sort", "name", "--json"])
    assert json.loads(chosen.stdout)[-1] == {"name": "slow", "val/freq": "3", "loss.min": 0.2}
    make_job("both", [0.1], 0.1, arguments=["--loss", "mse"])
    both = CliRunner().invoke(
        command, ["--columns", "params.loss,metrics.loss", "--json", "-n", "1", "--sort", "name"]
    )
    assert json.loads(both.stdout) == [{"params.loss": "mse", "metrics.loss": 0.1}]
    whole = CliRunner().invoke(command, ["--where", "epochs == 10", "--json"])
    assert json.loads(whole.stdout)[0]["parameters"] == {"epochs": "10", "lr": "0.1"}
    assert CliRunner().invoke(command, ["--where", "lr>0", "--platform", "local"]).exit_code == 2
    for limit in ("-1", "0", "99999999999999999999"):
        assert CliRunner().invoke(command, ["--where", "lr>0", "-n", limit]).exit_code == 2


@pytest.mark.parametrize("where", [r"name == '\ud800'", "lr > 0"])
def test_a_query_that_fails_leaves_the_index(where: str, jobs: None) -> None:
    before = len(list_jobs())
    add_job(IndexEntry("kept", "local", 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(InvalidQuery):
            history.query(where.encode().decode("unicode_escape"), limit=10**20)
    assert len(list_jobs()) == before + 1
    assert not list(state_home().glob("index.damaged*"))


def test_looking_at_an_ended_job_keeps_its_end() -> None:
    make_job("shown", [0.5], 0.1)
    look_at(LocalPlatform(), "shown")
    shutil.rmtree(JobFolder.of("local", "shown").path)
    (kept,) = history.query("name == 'shown'", up_to_date=False)
    assert (kept.status, kept.parameters["lr"], kept.metrics["loss"].last) == ("Completed", "0.1", 0.5)
