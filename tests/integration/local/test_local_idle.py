"""Supervisors that start while their job is packed, including those that never get a job."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from local_jobs import wait_until

from cloudtrain import Estimator, Job
from cloudtrain.__main__ import needed_supervisor
from cloudtrain._system.descriptors import send_descriptors
from cloudtrain.contract import JobStatus
from cloudtrain.errors import InvalidSource
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.platforms.supervised import JobFolder
from cloudtrain.platforms.supervised.early import (
    CONTAINER_SUPERVISOR,
    LOCAL_SUPERVISOR,
    start_early,
    started_early,
)
from cloudtrain.platforms.supervised.idle import IdleSupervisor
from cloudtrain.runtime.launchers.launch import process_lives

pytestmark = pytest.mark.usefixtures("own_interpreter")


def children() -> set[int]:
    """Supervisors that this process has started before they had a job."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == os.getpid() and words[3:5] == [LOCAL_SUPERVISOR.encode(), b""]:
                found.add(int(entry.name))
    return found


def started_after(before: set[int]) -> int:
    """The supervisor that was started since. For a moment after exec, a process has no arguments in /proc."""
    deadline = time.monotonic() + 60
    while not (found := children() - before):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    [idle] = found
    return idle


@pytest.fixture
def own_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisors are children of this process, and not forked from another one."""
    monkeypatch.setenv("PYTHONPATH", "")


@pytest.fixture
def script(tmp_path: Path) -> str:
    program = (
        'import os, time\nprint("hello", os.environ["A_TOKEN"], os.environ["A"], flush=True)\ntime.sleep(1)\n'
    )
    (tmp_path / "train.py").write_text(program)
    return str(tmp_path / "train.py")


def test_the_job_gets_the_supervisor_that_waits(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    platform, before = LocalPlatform(), children()
    platform.warm_up()
    idle = started_after(before)
    monkeypatch.setenv("A", "set after the start")
    job = Estimator(script, platform=platform, environment={"A_TOKEN": "s3cret"}).fit(wait=False)
    wait_until(lambda: "hello s3cret set after the start" in job.logs(), "the script")
    assert os.getsid(JobFolder.of("local", job.name).read_record().pid or 0) == idle
    assert job.wait().status == JobStatus.COMPLETED


def test_a_supervisor_that_has_died_is_replaced(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "b")
    platform, before = LocalPlatform(), children()
    platform.warm_up()
    idle = started_after(before)
    os.kill(idle, signal.SIGKILL)
    os.waitpid(idle, 0)
    job = Estimator(script, platform=platform, environment={"A_TOKEN": "s3cret"}).fit(wait=False)
    assert job.wait().status == JobStatus.COMPLETED


def test_a_paused_supervisor_is_replaced(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "b")
    monkeypatch.setattr("cloudtrain.platforms.supervised.machine.ACKNOWLEDGE_SECONDS", 0.5)
    platform, before = LocalPlatform(), children()
    platform.warm_up()
    idle = started_after(before)
    os.kill(idle, signal.SIGSTOP)
    job = Estimator(script, platform=platform, environment={"A_TOKEN": "s3cret"}).fit(wait=False)
    assert idle not in children()
    assert job.wait().status == JobStatus.COMPLETED


def test_a_supervisor_that_gave_up_waiting_is_replaced(tmp_path: Path) -> None:
    """It ends while it has the socket open, so that the client can still send."""
    program = "import os, time, socket; s = socket.socket(fileno=os.dup(0)); time.sleep(1)"
    (tmp_path / "late.py").write_text(program)
    idle = IdleSupervisor.start("late", {"PYTHONPATH": str(tmp_path)})
    assert idle is not None
    with open(tmp_path / "log", "w") as log:
        assert not idle.take(tmp_path, tmp_path, {}, log.fileno(), log.fileno(), 10)
    assert idle.process.returncode is not None


def test_a_supervisor_that_accepts_its_job_too_late_leaves_no_child(tmp_path: Path) -> None:
    """The client has given the job to another one by then."""
    program = "import os, time; os.fork() or open({!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    (tmp_path / "slow.py").write_text(program.format(str(tmp_path / "child")))
    idle = IdleSupervisor.start("slow", {"PYTHONPATH": str(tmp_path)})
    assert idle is not None
    wait_until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text(), "the fork")
    with open(tmp_path / "log", "w") as log:
        assert not idle.take(tmp_path, tmp_path, {}, log.fileno(), log.fileno(), 0.2)
    wait_until(lambda: not process_lives(int((tmp_path / "child").read_text())), "the end of the child")


def test_files_in_the_root_folder_shadow_no_module(tmp_path: Path) -> None:
    """The working folder of a waiting supervisor is not on its path."""
    (tmp_path / "shown.py").write_text("import os, sys; os.write(0, repr(sys.path).encode())")
    idle = IdleSupervisor.start("shown", {"PYTHONPATH": str(tmp_path)})
    assert idle is not None
    shown = idle.channel.recv(1 << 16).decode()
    idle.channel.close()
    idle.process.wait()
    assert repr(str(tmp_path)) in shown
    assert "''" not in shown and "'/'" not in shown


def test_a_supervisor_without_a_job_ends_with_its_client(tmp_path: Path) -> None:
    platform, before = LocalPlatform(), children()
    with pytest.raises(InvalidSource):
        Estimator(str(tmp_path / "missing.py"), platform=platform).fit()
    idle = started_after(before)
    del platform
    wait_until(lambda: not Path(f"/proc/{idle}").exists(), "the end of the supervisor")  # not even a zombie


def test_many_submissions_leave_nothing_in_their_process(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A", "b")

    def submit() -> Job:
        return Estimator(script, environment={"A_TOKEN": "s3cret"}).fit(wait=False)

    jobs = [submit()]  # loads modules
    gc.collect()
    before = resources()
    jobs += [submit() for _ in range(5)]
    gc.collect()
    assert resources() == before
    for job in jobs:
        assert job.wait().status == JobStatus.COMPLETED


def resources() -> tuple[str, int, int]:
    """The children, threads and descriptors of this process."""
    own = Path(f"/proc/{os.getpid()}/task")
    children = "".join(file.read_text() for file in own.glob("*/children"))
    return children, len(list(own.iterdir())), len(os.listdir("/proc/self/fd"))


def test_a_command_takes_the_supervisor_that_it_started_before_its_imports(script: str) -> None:
    before = children()
    start_early(LOCAL_SUPERVISOR)
    idle = started_after(before)
    platform = LocalPlatform()
    platform.warm_up()
    assert children() - before == {idle}
    assert started_early(LOCAL_SUPERVISOR) is None


@pytest.mark.parametrize(
    ("command", "configured", "supervisor"),
    [
        ("submit train.py --processes-per-host 2 -- --platform slurm", False, LOCAL_SUPERVISOR),
        ("submit --env A=b train.py", False, LOCAL_SUPERVISOR),
        ("submit train.py", True, ""),
        ("submit train.yaml", False, ""),
        ("submit train.py --platform=slurm", False, ""),
        ("submit --image train:1 train.py", False, ""),
        ("submit train.py --dry-run", False, ""),
        ("submit train.py --platform container --image train:1", True, CONTAINER_SUPERVISOR),
        ("submit train.py --platform=container --set image_uri=auto", False, CONTAINER_SUPERVISOR),
        ("submit train.py --platform container --check", False, ""),
        ("submit train.py --platform", False, ""),
        ("run train.py", False, ""),
        ("", False, ""),
    ],
)
def test_a_command_starts_it_early_only_for_a_job_that_clearly_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, configured: bool, supervisor: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    if configured:
        (tmp_path / "cloudtrain").mkdir()
        (tmp_path / "cloudtrain" / "config.yaml").touch()
    assert needed_supervisor(command.split()) == supervisor


def test_a_config_that_cannot_be_looked_for_is_left_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", f"/{'a' * 300}")
    assert needed_supervisor(["submit", "train.py"]) == ""


def test_a_dry_run_starts_none(script: str) -> None:
    before = children()
    Estimator(script, platform=LocalPlatform()).prepare()
    assert children() <= before


def test_a_supervisor_whose_client_was_killed_does_not_run_the_job_of_another(tmp_path: Path) -> None:
    """Two clients submit a job of one name, and the slower one is killed: its supervisor must not run the job again."""
    for name in ("draft", "target"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "request.json").touch()
    client, supervisor = socket.socketpair()
    code = "from cloudtrain.platforms.supervised.idle import wait_for_job; print(wait_for_job(), flush=True)"
    with supervisor, open(tmp_path / "log", "w") as log:
        message = json.dumps(
            {"folder": str(tmp_path / "draft"), "target": str(tmp_path / "target"), "environ": {}}
        ).encode()
        send_descriptors(client, len(message).to_bytes(8, "big"), [log.fileno(), log.fileno()])
        client.sendall(message)
        client.close()
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdin=supervisor.fileno(),
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.stdout == "None\n", done.stderr
    assert (tmp_path / "log").read_text() == ""
