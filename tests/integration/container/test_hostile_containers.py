"""A container that attacks the machine through what it leaves in its folders: one job plays all attacks."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from container_jobs import folder_of, jobs_in, wait_for_end, wait_until
from engine_daemon import Engine

from cloudtrain import Job, JobStatus, TrainingInput
from cloudtrain._system.trees import remove_tree
from cloudtrain.platforms.supervised.leftovers import JobEnds, old_jobs
from cloudtrain.storage import open_store

SECRET = "the secret of the host"

ATTACKS = """
import ctypes, json, os, socket, sys, time
secret, outside, seconds = sys.argv[1], os.path.dirname(sys.argv[1]), float(sys.argv[2])
ml = "/opt/ml"

def tried(attack):
    try:
        attack()
    except OSError as error:
        return type(error).__name__
    return "succeeded"

def replace(path, target):
    os.rename(path, path + "-aside")
    os.symlink(target, path)

if not os.path.exists(ml + "/checkpoints/attempted"):
    open(ml + "/checkpoints/attempted", "w").close()
    os.remove(ml + "/input/config/hyperparameters.json")
    os.symlink(secret, ml + "/input/config/hyperparameters.json")
    os.symlink(secret, ml + "/output/failure")
    for folder in ("model", "code", "input/data", "run", "output/logs"):
        replace(f"{ml}/{folder}", outside)
    os.chmod(ml + "/input/config", 0)
    sys.exit(1)

report = {
    "config": os.path.islink(ml + "/input/config/hyperparameters.json"),
    "folders": [name for name in ("model", "code", "input/data", "run") if os.path.islink(f"{ml}/{name}")],
    "block device": tried(lambda: os.mknod(ml + "/checkpoints/disk", 0o60666, os.makedev(7, 0))),
    "character device": tried(lambda: os.mknod(ml + "/model/zero", 0o20666, os.makedev(1, 5))),
    "raw socket": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
    "mount": ctypes.CDLL(None).mount(b"none", b"/mnt", b"tmpfs", 0, None),
    "status": [line.split() for line in open("/proc/self/status") if line.startswith(("NoNewPrivs", "CapEff"))],
}
# a link in the place of a channel's pipe: the supervisor writes data into it
os.remove(ml + "/input/data/train_0")
os.symlink(secret, ml + "/input/data/train_0")

for folder in ("checkpoints", "model", "output/data"):
    here = f"{ml}/{folder}/"
    os.mkfifo(here + "pipe")
    socket.socket(socket.AF_UNIX).bind(here + "socket")
    os.symlink(secret, here + "file")
    os.symlink(outside, here + "folder")
    os.symlink("..", here + "up")
    open(here + "own", "w").write("own")
    os.symlink("own", here + "latest")
    os.mkdir(here + "closed", 0)
os.remove(ml + "/input/config/resourceconfig.json")
os.mkfifo(ml + "/input/config/resourceconfig.json")
os.mkfifo(ml + "/output/failure")
os.mkfifo(ml + "/output/failure.json")
json.dump(report, open(ml + "/model/report.json", "w"))

# a checkpoint is a file when it is looked at, and a link when it is read
swaps, end = 0, time.time() + seconds
while time.time() < end:
    for target in ("own", secret, outside):
        os.symlink(target, ml + "/checkpoints/next")
        os.rename(ml + "/checkpoints/next", ml + "/checkpoints/swapped")
    with open(ml + "/checkpoints/next", "w") as file:
        file.write("own")
    os.utime(ml + "/checkpoints/next", (1, 1))
    os.rename(ml + "/checkpoints/next", ml + "/checkpoints/swapped")
    swaps += 1
print("swaps", swaps)
os.chdir(ml + "/output")
for _ in range(2000):
    os.mkdir("deep")
    os.chdir("deep")
"""


@pytest.fixture(params=["docker", "podman"])
def either(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.getfixturevalue("engine" if request.param == "docker" else request.param)
    return engine


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "secret"
    path.parent.mkdir(mode=0o755)
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty state folder, which is removed: jobs leave folders nested deeper than pytest can remove."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "state"))
    yield
    remove_tree(tmp_path / "state")


def play(engine: Engine, tmp_path: Path, s3: str, secret: Path, seconds: float) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part").write_text("training data")
    with jobs_in(engine, tmp_path) as jobs:
        job = jobs.start(
            None,
            {"train": TrainingInput((tmp_path / "data").as_uri(), input_mode="Pipe")},
            container_entry_point=["python", "-c", ATTACKS],
            container_arguments=[str(secret), str(seconds)],
            max_retry_attempts=1,
            disable_output_compression=True,
            output_path=f"s3://{s3}/out",
            checkpoint_s3_uri=f"s3://{s3}/saved",
        )
        described = wait_for_end(job).describe()
        assert described.status == JobStatus.COMPLETED, (job.logs(), described.failure)
        assert described.attempt == 1

        # the host is as it was
        assert secret.read_text() == SECRET
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert [path.name for path in secret.parent.iterdir()] == ["secret"]
        assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o755

        # only files of the job were uploaded
        stored = {
            f"{where}/{entry.key.removeprefix(f'{job.name}/output/')}": open_store(f"s3://{s3}/{where}").read(
                entry.key
            )
            for where in ("out", "saved")
            for entry in open_store(f"s3://{s3}/{where}").list()
        }
        assert SECRET.encode() not in b"".join(stored.values())
        report = json.loads(stored.pop("out/model/report.json"))
        expected = {
            f"{folder}/{name}"
            for folder in ("out/model", "out/output", "saved")
            for name in ("own", "latest")
        }
        assert expected <= stored.keys() <= {*expected, "saved/attempted", "saved/swapped"}
        assert {stored[name] for name in expected} == {b"own"}
        assert stored.get("saved/swapped", b"own") == b"own"
        for warning, folder in zip(described.warnings, ("model", "checkpoints"), strict=True):
            assert warning.startswith("not uploaded: ")
            assert f"{folder}/file (a link out of its folder)" in warning
            assert job.logs().count(warning) == 1

        _check_confinement(report)

        # and what is left can be downloaded, and removed
        assert sorted(path.name for path in job.download(tmp_path / "results")) == ["model", "output"]
        wait_until(lambda: not folder_of(job).is_locked(), "the end of the supervisor")
        [left] = [
            left
            for left in old_jobs(time.time(), JobEnds(lambda _, name: Job.attach(name).describe()))
            if left.name == job.name
        ]
    left.remove()
    assert not folder_of(job).path.exists()
    assert secret.read_text() == SECRET
    assert engine.leftovers() == []


def _check_confinement(report: dict[str, Any]) -> None:
    status = dict(report.pop("status"))
    assert status["NoNewPrivs:"] == "1"
    # AUDIT_WRITE, CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, NET_BIND_SERVICE, SETGID, SETUID, SYS_CHROOT
    rights = {29, 0, 1, 3, 4, 5, 10, 6, 7, 18}
    assert {bit for bit in range(64) if int(status["CapEff:"], 16) >> bit & 1} == rights
    assert report == {
        "config": False,
        "folders": [],
        "block device": "PermissionError",
        "character device": "PermissionError",
        "raw socket": "PermissionError",
        "mount": -1,
    }


def test_a_container_reaches_nothing_of_its_host(
    either: Engine, tmp_path: Path, s3: str, secret: Path, state: None
) -> None:
    play(either, tmp_path, s3, secret, seconds=0)


@pytest.mark.soak
def test_swapped_checkpoints_show_nothing_while_they_are_synced(
    engine: Engine, tmp_path: Path, s3: str, secret: Path, state: None
) -> None:
    play(engine, tmp_path, s3, secret, seconds=30)


def test_a_linked_failure_file_shows_nothing(engine: Engine, tmp_path: Path, secret: Path) -> None:
    """The programs of two images report a failure: one through a link, the other one through a pipe."""
    with jobs_in(engine, tmp_path) as jobs:
        started = [
            jobs.start(None, container_entry_point=["/bin/sh", "-c", command + "; exit 3"])
            for command in (f"ln -s {secret} /opt/ml/output/failure", "mkfifo /opt/ml/output/failure")
        ]
        for job in started:
            failure = wait_for_end(job).describe().failure
            assert failure
            assert failure.message == "the image's program exited with code 3"
            assert SECRET not in job.logs()


def test_a_job_can_request_more_rights(engine: Engine, tmp_path: Path) -> None:
    with jobs_in(engine, tmp_path) as jobs:
        job = jobs.start(
            None,
            container_entry_point=["grep", "-E", "NoNewPrivs|CapEff", "/proc/self/status"],
            options={"capabilities": ["NET_RAW"], "new_privileges": True},
        )
        assert wait_for_end(job).status == JobStatus.COMPLETED
        status = dict(line.split() for line in job.logs().splitlines())
        assert status["NoNewPrivs:"] == "0"
        assert int(status["CapEff:"], 16) >> 13 & 1
