"""Anything may be in the place of a file in the folder of a job: commands report it, and it hides no other job."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from systems.played import commands_on

from cloudtrain.cli import cli
from cloudtrain.contract import JobStatus
from cloudtrain.errors import CloudtrainError
from cloudtrain.index import IndexEntry, add_job
from cloudtrain.platforms.common.request import base_body
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.spec import TrainingJob

COMMANDS = (
    *(["list"], ["list", "--json"], ["describe", "bad"], ["describe", "bad", "--json"], ["metrics", "bad"]),
    *(
        ["logs", "bad"],
        ["wait", "bad"],
        ["stop", "bad"],
        ["download", "bad"],
        ["clean", "--jobs-older-than", "1h"],
    ),
    ["timeline", "bad"],
)
COMMANDS_ON_WINDOWS = [
    *(
        ["list"],
        ["describe", "good"],
        ["logs", "good"],
        ["metrics", "good"],
        ["wait", "good"],
        ["stop", "good"],
    ),
    *(["clean"], ["clean", "--jobs-older-than", "1h", "--caches"], ["clean", "--dry-run"]),
]
FILES = ("state.json", "request.json", "events.jsonl", "job.log", "supervisor.log", "lock", "stop")

EVENTS = [
    {
        "time": 1.0,
        "source": "algo-1",
        "event": "phase",
        "phase": "train",
        "state": "ended",
        "seconds": 1.0,
        "bytes": 1,
    },
    {"time": 1.0, "source": "algo-1", "event": "metric", "name": "loss", "value": 0.5},
    {"time": 1.0, "source": "algo-1", "event": "uploaded", "kind": "model", "uri": "file:///etc/passwd"},
]


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(os.urandom(300)),
    "brackets": lambda path: path.write_bytes(b"[" * 100_000),
    "a list": lambda path: path.write_bytes(b"[1, 2]"),
    "an object": lambda path: path.write_bytes(
        b'{"status": ["Completed"], "event": {"phase": 1}, "settings": 5}'
    ),
    "a long line": lambda path: path.write_bytes(b"x" * 3_000_000),
    "a folder": lambda path: path.mkdir(),
    "a named pipe": lambda path: os.mkfifo(path),
    "a link": link,
    "a link to itself": lambda path: path.symlink_to(path),
    "missing": lambda path: None,
}


def make_job(name: str) -> JobFolder:
    """A completed job of the local platform, as its supervisor leaves it."""
    folder = JobFolder.of("local", name)
    folder.path.mkdir(parents=True)
    job = TrainingJob(entry_point="train.py", job_name=name, output_path=folder.path.parent.as_uri())
    job = TrainingJob.from_dict({**job.to_dict(), "checkpoint_s3_uri": f"{folder.path.as_uri()}/checkpoints"})
    body: dict[str, Any] = base_body(job, master_port=0, max_preemptions=3)
    (folder.path / "request.json").write_text(json.dumps({**body, "hyperparameters": {}, "python": "python"}))
    for file in ("job.log", "supervisor.log", "lock"):
        (folder.path / file).touch()
    folder.events.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    now = time.time() - 1800
    folder.write_record(
        JobRecord(JobStatus.COMPLETED, now, pid=2**22 + 1, started_at=now, ended_at=now, exit_code=0)
    )
    add_job(IndexEntry(name, "local", now))
    return folder


def replace(path: Path, damage: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    DAMAGES[damage](path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_no_command_gives_a_traceback_or_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, damage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_job("good")
    folder = make_job("bad")
    for command in COMMANDS:
        replace(folder.path / file, damage)
        result = CliRunner().invoke(cli, command)
        assert isinstance(result.exception, (CloudtrainError, SystemExit, type(None))), (
            command,
            result.exception,
        )
        assert isinstance(result.output, str)
        if command == ["list"]:
            rows = {line.split()[0]: line for line in result.output.splitlines()[1:] if line[0] != " "}
            assert rows.keys() == {"good", "bad"}
            assert "Completed" in rows["good"]
    assert sorted(tmp_path.iterdir()) == []
    assert {job.name for job in LocalPlatform().list()} >= {"good"}


@pytest.mark.parametrize("damage", [damage for damage in DAMAGES if damage != "missing"])
def test_a_damaged_record_is_listed_with_what_to_do(damage: str) -> None:
    folder = make_job("bad")
    replace(folder.path / "state.json", damage)
    [job] = LocalPlatform().list()
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert f"{folder.path}/state.json is damaged: " in job.failure.message
    assert job.failure.hint == f"Copy what you still need from {folder.path}, then remove it."
    assert 1800 <= time.time() - job.submitted_at < 3600, "the index knows when it was submitted"


def test_a_damaged_request_is_a_warning() -> None:
    folder = make_job("bad")
    (folder.path / "request.json").write_text('{"settings": {"stop_grace": "x"}}')
    job = LocalPlatform().describe("bad")
    assert job.status == JobStatus.COMPLETED
    assert "request.json is damaged: settings.stop_grace is not a number: 'x'" in job.warnings[0]
    assert job.metrics == {"loss": 0.5}


def test_events_do_not_decide_the_place_of_the_model() -> None:
    folder = make_job("good")
    description = LocalPlatform().describe("good")
    assert description.model_data == f"{folder.path.as_uri()}/output/model.tar.gz"


def test_a_job_whose_record_is_damaged_can_be_stopped() -> None:
    folder = make_job("bad")
    (folder.path / "state.json").write_text("{")
    descriptor = folder.lock()  # as its supervisor does
    assert descriptor is not None
    try:
        assert LocalPlatform().describe("bad").status == JobStatus.RUNNING
        LocalPlatform().stop("bad")
        assert folder.stop_mark.exists()
    finally:
        os.close(descriptor)


def test_on_windows_commands_on_a_job_of_this_user_give_no_traceback(tmp_path: Path) -> None:
    """A home that Windows shares with WSL: jobs run there, and Windows cannot see their locks."""
    folder = make_job("good")
    ended = commands_on("win32", *COMMANDS_ON_WINDOWS, cwd=tmp_path)
    for command, (code, out, err) in zip(COMMANDS_ON_WINDOWS, ended, strict=True):
        assert "Traceback" not in out + err, command
        assert code in (0, 1, 2), command
    assert folder.path.exists()
