"""The history that a team shares, in a real PostgreSQL."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from postgres_server import start_postgres
from test_history import CONDITIONS, make_job

from cloudtrain import history
from cloudtrain.cli.list import command
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import InvalidJob
from cloudtrain.history.expression import InvalidQuery
from cloudtrain.history.refresh import freeze
from cloudtrain.history.shared import Database, with_shared
from cloudtrain.index import VERSION, remove_job
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.runtime.supervisor.folder import JobFolder


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with start_postgres() as url:
        yield url


@pytest.fixture
def shared(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import psycopg

    monkeypatch.setenv("CLOUDTRAIN_HISTORY", server)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS cloudtrain CASCADE")
        yield connection


def make_jobs() -> None:
    make_job("slow", [0.9, 0.2, 0.5], 0.01, submitted_at=10.0, arguments=["--epochs", "5", "--val/freq=3"])
    make_job("fast", [0.8, 0.4], 0.1, submitted_at=20.0, arguments=["--epochs", "10"])
    failure = FailureReport(FailureClass.USER_ERROR, "boom", rank=1, exception_type="ValueError")
    make_job("none", [], "auto", submitted_at=30.0, status=JobStatus.FAILED, failure=failure, exit_code=1)


def test_the_shared_history_answers_as_the_index_does(shared: Any) -> None:
    make_jobs()
    for where, expected in CONDITIONS:
        assert [job.name for job in history.query(where)] == expected, where
    for sort, names in (
        ("loss", "fast slow none"),
        ("-epochs", "fast slow none"),
        ("name", "fast none slow"),
    ):
        assert [job.name for job in history.query(sort=sort)] == names.split()
    assert history.query("name == 'slow'")[0].metrics == {"loss": (0.5, 0.2, 0.9)}
    with pytest.raises(InvalidQuery, match="'los'"):
        history.query("los < 1")


def test_the_tables_of_version_3_are_migrated(shared: Any) -> None:
    make_jobs()
    assert len(history.query()) == 3
    for column in ("currency", "plan_error", "plan_cost_error"):
        shared.execute(f"ALTER TABLE cloudtrain.history DROP COLUMN {column}")
    shared.execute("UPDATE cloudtrain.version SET version = 3")
    assert len(history.query("currency == None")) == 3
    assert shared.execute("SELECT max(version) FROM cloudtrain.version").fetchone() == (VERSION,)


def test_a_team_sees_the_jobs_of_all_its_machines(
    shared: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_jobs()
    freeze(LocalPlatform(), LocalPlatform().describe("slow"))
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "other"))
    monkeypatch.setattr("cloudtrain.history.ends.owner", lambda: "bob@other")
    make_job("slow", [0.1], 0.3, submitted_at=10.0)
    best = history.query(sort="loss")[0]
    assert (best.owner, best.metrics["loss"].last) == ("bob@other", 0.1)
    assert len(history.query()) == 2
    listed = CliRunner().invoke(command, ["--where", "lr > 0.2", "--columns", "name,owner"])
    assert listed.stdout.split() == ["NAME", "OWNER", "slow", "bob@other"]
    assert shared.execute("SELECT count(*) FROM cloudtrain.history").fetchone() == (2,)


def test_a_job_is_there_once_though_it_is_seen_often_and_its_index_is_lost(shared: Any) -> None:
    folder = make_job("running", [0.5], 0.1, status=JobStatus.RUNNING, ended_at=None, exit_code=None)
    lock = folder.lock()
    assert history.query()[0].status == "Running"
    os.close(lock)  # type: ignore[arg-type]
    assert [job.status for job in history.query()] == ["Failed"]
    Path(os.environ["CLOUDTRAIN_HOME"], "index.db").unlink()
    assert [job.status for job in history.query()] == ["Failed"]


def test_a_removed_job_stays(shared: Any) -> None:
    make_jobs()
    assert len(history.query()) == 3
    remove_job("slow", "local")
    shutil.rmtree(JobFolder.of("local", "slow").path)
    assert len(history.query()) == 3


def _query(home: str) -> int:
    os.environ["CLOUDTRAIN_HOME"] = home
    return len(history.query())


def test_clients_create_the_shared_history_concurrently(
    shared: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    homes = [str(tmp_path / f"home-{number}") for number in range(3)]
    for number, home in enumerate(homes):
        monkeypatch.setenv("CLOUDTRAIN_HOME", home)
        for job in range(30):
            make_job(f"job-{number}-{job}", [0.1], 0.1)
    with multiprocessing.get_context("fork").Pool(3) as processes:
        processes.map(_query, homes)
    assert shared.execute("SELECT count(*) FROM cloudtrain.history").fetchone() == (90,)
    assert shared.execute("SELECT count(*) FROM cloudtrain.metrics").fetchone() == (90,)


def test_a_server_that_is_away_gets_the_news_later(
    shared: Any, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HISTORY", server.replace("/data", "/away"))
    make_jobs()
    with pytest.warns(UserWarning, match="the shared history cannot be used") as warned:
        assert len(history.query()) == 3
        freeze(LocalPlatform(), LocalPlatform().describe("slow"))
    assert "secret" not in "".join(str(one.message) for one in warned)
    monkeypatch.setenv("CLOUDTRAIN_HISTORY", server)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(history.query()) == 3
    assert shared.execute("SELECT count(*) FROM cloudtrain.history").fetchone() == (3,)


def test_each_person_has_a_role(shared: Any, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    history.query()
    page = Path(__file__).parents[3] / "docs" / "guides" / "compare-runs.md"
    (grants,) = re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL)
    shared.execute(f"CREATE ROLE team; CREATE ROLE bob LOGIN PASSWORD 'secret' IN ROLE team; {grants}")
    monkeypatch.setenv("CLOUDTRAIN_HISTORY", server.replace("ann:", "bob:"))
    make_jobs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(history.query()) == 3
    assert shared.execute("SELECT count(*) FROM cloudtrain.history").fetchone() == (3,)
    shared.execute("DROP SCHEMA cloudtrain CASCADE; DROP ROLE bob; DROP ROLE team")


def test_a_locked_table_is_not_waited_for_long(
    shared: Any, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain.history.shared.LOCKED_SECONDS", 1)
    make_jobs()
    history.query()
    with shared.transaction():
        shared.execute("LOCK TABLE cloudtrain.history")
        with pytest.warns(UserWarning, match="the shared history cannot be used .*lock timeout"):
            assert len(history.query()) == 3


def test_a_later_version_and_other_urls_are_refused(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    history.query()
    shared.execute("INSERT INTO cloudtrain.version VALUES (99)")
    with pytest.raises(Exception, match="a later version of cloudtrain has written the shared history"):
        history.query()
    monkeypatch.setenv("CLOUDTRAIN_HISTORY", "mysql://ann:secret@host/db")
    with pytest.raises(InvalidJob, match="is not one of PostgreSQL: mysql:") as raised:
        history.query()
    assert "secret" not in str(raised.value)


def test_a_server_that_ends_in_the_middle_of_a_query_loses_nothing(shared: Any) -> None:
    make_jobs()

    def end(database: Database) -> None:
        database.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.warns(UserWarning, match="shared history cannot be used .*: only jobs of this machine"):
        assert with_shared(end) is None
    assert len(history.query()) == 3
    assert shared.execute("SELECT count(*) FROM cloudtrain.history").fetchone() == (3,)


def test_a_server_that_is_paused_holds_no_client(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make_jobs()
    assert len(history.query()) == 3
    monkeypatch.setattr("cloudtrain.history.shared.ANSWER_SECONDS", 2.0)
    pids: list[int] = []

    def pause(database: Database) -> None:
        pids.append(database.execute("SELECT pg_backend_pid()").fetchone()[0])
        os.kill(pids[0], signal.SIGSTOP)
        database.execute("SELECT 1")

    began = time.monotonic()
    try:
        with pytest.warns(UserWarning, match="shared history cannot be used .*: only jobs of this machine"):
            assert with_shared(pause) is None
    finally:
        os.kill(pids[0], signal.SIGCONT)
    assert 2 <= time.monotonic() - began < 60
    assert len(history.query()) == 3
