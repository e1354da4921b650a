"""Several clients submit a job of the same name at the same moment: one job runs, and every command finds it."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Barrier
from pathlib import Path

from command import cloudtrain
from local_jobs import Run

from cloudtrain import Estimator, Job
from cloudtrain.errors import JobExists
from cloudtrain.index import find_job, list_jobs
from cloudtrain.storage import state_home

CLIENTS, NAMES = 3, 4


def _submit(script: Path, name: str) -> bool:
    try:
        Estimator(str(script)).fit(wait=False, job_name=name)
    except JobExists:
        return False
    return True


def _client(script: Path, ready: Barrier, results: multiprocessing.Queue[tuple[str, bool, bool]]) -> None:
    for number in range(NAMES):
        name = f"job-{number}"
        ready.wait(60)
        won = _submit(script, name)
        ready.wait(60)
        results.put((name, won, find_job(name) is not None))


def test_a_job_that_runs_is_found_after_others_failed_to_submit_its_name(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('x')")
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(CLIENTS), context.Queue()
    clients = [context.Process(target=_client, args=(script, ready, results)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    found = [results.get(timeout=120) for _ in range(CLIENTS * NAMES)]
    for client in clients:
        client.join(60)
    names = [f"job-{number}" for number in range(NAMES)]
    assert sorted(name for name, won, _ in found if won) == names
    assert [name for name, _, is_found in found if not is_found] == []
    assert sorted(entry.name for entry in list_jobs()) == names
    for name in names:
        assert Job.attach(name).wait(60).status == "Completed"


def test_every_command_works_with_a_damaged_index(tmp_path: Path, run: Run) -> None:
    run("print('x')", job_name="before")
    index = state_home() / "index.db"
    (tmp_path / "train.py").write_text("print('x')")
    for arguments in (
        ["list"],
        ["describe", "before"],
        ["submit", "train.py", "--name", "after"],
        ["wait", "after"],
        ["stop", "after"],
    ):
        index.write_bytes(b"no database")
        done = cloudtrain(*arguments, cwd=tmp_path)
        assert done.code == 0, done.err
        assert done.err.count("Warning: ") == 1, done.err
        assert "Warning: the index of jobs" in done.err
    assert {entry.name for entry in list_jobs()} == {"before", "after"}
