"""The memory folder of a host: which attempt finds it again, and when its copies and the folder itself are given up."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cloudtrain._system.files import lock
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.memory.files import VARIABLE, data_path, space_in
from cloudtrain.checkpoint.memory.header import Header
from cloudtrain.checkpoint.memory.source import checkpoints_in
from cloudtrain.contract import FailureClass, FailureReport, JobStatus, Paths
from cloudtrain.runtime.checkpoint_memory import STALE_SECONDS, CheckpointMemory, remove_memory
from cloudtrain.runtime.outcome import HostOutcome
from cloudtrain.runtime.sampling.machine import Machine
from cloudtrain.runtime.supervisor.left_memory import save_left_memory

FAILED = HostOutcome(JobStatus.FAILED, FailureReport(FailureClass.HOST_LOST, "a rank failed"))
COMPLETED = HostOutcome(JobStatus.COMPLETED)

Begin = Callable[[int], CheckpointMemory]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "host")
    paths.make()
    return paths


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


@pytest.fixture
def begin(paths: Paths, shared: Path) -> Iterator[Begin]:
    """Begins an attempt; those that have not ended are completed."""
    begun = []

    def begin(attempt: int) -> CheckpointMemory:
        variables = {"CLOUDTRAIN_RUN_ID": "job", "CLOUDTRAIN_ATTEMPT": str(attempt)}
        begun.append(CheckpointMemory(paths, attempt, {VARIABLE: str(shared), **variables}))
        return begun[-1]

    yield begin
    for memory in begun:
        memory.end(COMPLETED, print)


def save(memory: CheckpointMemory, uri: Path | str, monkeypatch: pytest.MonkeyPatch) -> Checkpointer:
    """A rank copies step 1."""
    monkeypatch.setenv(VARIABLE, memory.variables[VARIABLE])
    checkpointer = Checkpointer(uri)
    assert checkpointer.save(1, {"weights": np.zeros(1000)}, to="memory")
    return checkpointer


def test_the_folder_is_private_and_outlives_a_failed_attempt(
    begin: Begin, paths: Paths, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin(0)
    folder = first.folder
    assert folder is not None and folder.parent == shared
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    save(first, tmp_path / "run", monkeypatch)
    first.end(FAILED, print)
    assert Checkpointer(tmp_path / "run").steps() == [1]
    second = begin(1)
    assert second.folder == folder
    second.end(COMPLETED, print)
    assert os.listdir(shared) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_copies_stay_for_a_restart_here_only(
    paths: Paths, shared: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """A scheduler that takes the host back sends SIGTERM to the ranks, too."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")  # where nothing answers
    variables = {VARIABLE: str(shared), "CLOUDTRAIN_RUN_ID": "job", "CLOUDTRAIN_ATTEMPT": "0"}
    memory = CheckpointMemory(paths, 0, variables, restarts_here=True)
    save(memory, "s3://bucket/run", monkeypatch)
    report = FailureReport(FailureClass.KILLED, "", exit_code=128 + number, signal=number)
    assert memory.may_stay(report) == (number == signal.SIGKILL)
    memory.end(COMPLETED, print)


@pytest.mark.parametrize("other", [False, True])
def test_an_attempt_that_is_not_counted_and_never_starts_commits_for_the_one_before(
    paths: Paths, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, other: bool
) -> None:
    """Unless another one has taken over."""
    variables = {VARIABLE: str(shared), "CLOUDTRAIN_RUN_ID": "job"}
    first = CheckpointMemory(paths, 0, variables)
    first.starts("a")
    save(first, tmp_path / "run", monkeypatch)
    os.close(first._owner)  # the runtime is killed
    if other:
        monkeypatch.setenv("CLOUDTRAIN_RUN_ID", "job")
        monkeypatch.setenv("CLOUDTRAIN_ATTEMPT_ID", "b")
        Checkpointer(tmp_path / "run").restore()
    second = CheckpointMemory(paths, 0, variables)
    assert second.folder == first.folder
    said: list[str] = []
    second.end(FAILED, said.append)
    for name in ("CLOUDTRAIN_RUN_ID", "CLOUDTRAIN_ATTEMPT_ID"):
        monkeypatch.delenv(name, raising=False)
    assert Checkpointer(tmp_path / "run").steps() == ([] if other else [1])
    assert said == (
        [
            "step 1 is in the memory of this host, and cannot be committed: another attempt of this job has taken over "
            "from the one that made this copy"
        ]
        if other
        else []
    )
    [record] = (tmp_path / "run").glob("attempts/*/*")
    assert record.name == "000000.json"
    remove_memory(paths)


def test_an_attempt_without_this_host_makes_its_copies_worthless(
    begin: Begin, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin(0)
    save(first, tmp_path / "run", monkeypatch)
    first.end(FAILED, print)
    third = begin(2)
    assert third.folder is not None
    assert os.listdir(shared) == [third.folder.name]
    assert not list(third.folder.glob("*.json"))


def test_a_completed_training_that_did_not_close_commits_its_last_copy(
    begin: Begin, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = begin(0)
    save(memory, tmp_path / "run", monkeypatch)
    memory.end(COMPLETED, print)
    assert Checkpointer(tmp_path / "run").steps() == [1]
    assert os.listdir(shared) == []


@pytest.mark.parametrize("outcome", [COMPLETED, FAILED])
def test_what_the_storage_never_takes_is_put_on_disk(
    begin: Begin,
    paths: Paths,
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    outcome: HostOutcome,
) -> None:
    """Copied to the storage, it is a checkpoint like any other."""
    memory, run, said, saved = begin(0), tmp_path / "run", list[str](), list[str]()
    save(memory, run, monkeypatch)
    run.write_text("no folder")
    memory.end(outcome, said.append)
    [problem] = said
    assert problem.startswith("step 1 is in the memory of this host, and cannot be committed: "), problem
    save_left_memory([paths], "job", os.environ, 30, saved.append, said.append)
    [_, sentence] = said
    assert f"Step 1 is on disk: copy what is in {paths.base}/unsaved/1 to {run.as_uri()}" in sentence
    assert saved == [] and os.listdir(shared) == []
    run.unlink()
    shutil.copytree(paths.base / "unsaved" / "1", run)
    monkeypatch.delenv(VARIABLE)
    checkpoint = Checkpointer(run).restore()
    assert checkpoint is not None and checkpoint.step == 1 and not checkpoint.state["weights"].any()


def test_what_no_place_takes_stays_in_memory(
    begin: Begin, paths: Paths, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, run, said = begin(0), tmp_path / "run", list[str]()
    save(memory, run, monkeypatch)
    for file in (run, paths.base / "unsaved"):
        file.write_text("no folder")
    memory.end(FAILED, print)
    save_left_memory([paths], "job", os.environ, 30, print, said.append)
    [sentence] = said
    assert sentence.startswith(
        f"the last checkpoint is left in {memory_path(paths)}, in the memory of this machine: "
    )
    assert "cannot be put into" in sentence
    assert list(memory_path(paths).glob("*.json"))
    remove_memory(paths)


def test_one_storage_that_is_away_keeps_no_other_from_taking_its_checkpoint(
    begin: Begin, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, said, saved = begin(0), list[str](), list[str]()
    for name in "abc":
        save(memory, tmp_path / name, monkeypatch)
    (paths.base / "unsaved").write_text("no folder")
    for name in "ac":
        (tmp_path / name).write_text("no folder")
    os.close(memory._owner)  # the runtime is killed
    save_left_memory([paths], "job", os.environ, 30, saved.append, said.append)
    assert [sentence.rpartition("/")[2] for sentence in saved] == ["b"]
    [sentence] = said
    assert sentence.count("cannot be put into") == 2
    remove_memory(paths)
    monkeypatch.setattr(memory, "folder", None)


def test_what_else_the_program_prints_is_not_a_sentence(
    begin: Begin, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the variables of the job, and so its ``sitecustomize``."""
    memory, said, saved = begin(0), list[str](), list[str]()
    save(memory, tmp_path / "run", monkeypatch)
    os.close(memory._owner)  # the runtime is killed
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("print('welcome', [1], 2, '[1, 2]', sep='\\n', end=' ')")
    environ = {**os.environ, "PYTHONPATH": str(site)}
    save_left_memory([paths], "job", environ, 30, saved.append, said.append)
    [sentence] = saved
    assert sentence.startswith("checkpoint 1, which was in the memory of this host, is committed in ")
    assert said == []
    monkeypatch.setattr(memory, "folder", None)


def test_a_process_that_cannot_start_leaves_the_copy(
    begin: Begin, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, said = begin(0), list[str]()
    save(memory, tmp_path / "run", monkeypatch)
    os.close(memory._owner)  # the runtime is killed
    with monkeypatch.context() as gone:
        gone.setattr(sys, "executable", str(tmp_path / "no Python"))
        save_left_memory([paths], "job", os.environ, 30, print, said.append)
    [sentence] = said
    assert "in the memory of this machine: [Errno 2] No such file or directory: " in sentence
    assert list(memory_path(paths).glob("*.json"))
    remove_memory(paths)
    monkeypatch.setattr(memory, "folder", None)


def test_a_copy_that_a_process_still_uses_is_not_removed(
    begin: Begin, paths: Paths, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even SIGKILL ends a rank that waits for a dead mount. The copy before is committed."""
    memory, said, saved = begin(0), list[str](), list[str]()
    checkpointer = save(memory, tmp_path / "run", monkeypatch)
    assert checkpointer.save(2, {"weights": np.ones(1000)}, to="memory")
    checkpointer.close()
    assert memory.folder is not None
    [found] = checkpoints_in(memory.folder).values()
    user = os.open(data_path(found[2].parts[0].path), os.O_RDWR)
    assert lock(user, wait=False)
    memory.end(FAILED, said.append)
    save_left_memory([paths], "job", os.environ, 30, saved.append, said.append)
    assert Checkpointer(tmp_path / "run").steps() == [1]
    kept, left = said
    problem = "step 2 is in the memory of this host, and cannot be committed: another process uses "
    assert kept.startswith(problem) and saved == []
    assert left.startswith("the last checkpoint is left in ") and problem in left
    os.close(user)
    save_left_memory([paths], "job", os.environ, 30, saved.append, said.append)
    assert Checkpointer(tmp_path / "run").steps() == [1, 2]
    assert len(saved) == 1 and len(said) == 2 and os.listdir(shared) == []


def test_an_attempt_in_full_memory_knows_that_its_copies_are_not_committed(
    begin: Begin, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin(0)
    save(first, tmp_path / "run", monkeypatch)
    first.end(FAILED, print)
    second = begin(1)
    (memory_path(paths) / "identity.new").mkdir()
    (memory_path(paths) / "identity.new" / "file").touch()
    with monkeypatch.context() as full:
        full.setattr(shutil, "rmtree", failing)
        second.starts("b")
    asked: list[Path] = []
    os.close(second._owner)  # the runtime is killed
    remove_memory(paths, lambda folder: not asked.append(folder))
    assert len(asked) == 1
    monkeypatch.setattr(second, "folder", None)


def failing(_path: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_the_storage_has_needs_no_process(
    begin: Begin, paths: Paths, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = begin(0)
    save(memory, tmp_path / "run", monkeypatch)
    memory.end(FAILED, print)
    asked: list[Path] = []
    remove_memory(paths, lambda folder: not asked.append(folder))
    assert asked == [] and os.listdir(shared) == []


def test_the_ranks_named_a_folder_of_opt_ml(
    begin: Begin, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each host has its own, other processes find it elsewhere."""
    memory = begin(0)
    save(memory, paths.checkpoints, monkeypatch)
    for path in memory_path(paths).glob("*.json"):
        header = Header.from_bytes(path.read_bytes())
        path.write_bytes(Header(**{**vars(header), "uri": "file:///opt/ml/checkpoints"}).to_bytes())
    os.close(memory._owner)  # the runtime is killed
    saved = list[str]()
    save_left_memory([paths], "job", os.environ, 30, saved.append, print)
    [sentence] = saved
    assert sentence.startswith("checkpoint 1, which was in the memory of this host, is committed in ")
    assert Checkpointer(paths.checkpoints).steps() == [1]
    monkeypatch.setattr(memory, "folder", None)


def memory_path(paths: Paths) -> Path:
    return Path((paths.input_config / "memory").read_text())


def test_a_failed_attempt_without_copies_leaves_nothing(begin: Begin, shared: Path) -> None:
    begin(0).end(FAILED, print)
    assert os.listdir(shared) == []


def test_the_supervisor_removes_what_the_last_attempt_kept(
    begin: Begin, paths: Paths, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = begin(0)
    save(memory, tmp_path / "run", monkeypatch)
    remove_memory(paths)
    assert os.listdir(shared) != [], "the runtime still runs"
    memory.end(FAILED, print)
    remove_memory(paths)
    assert os.listdir(shared) == []


@pytest.mark.parametrize("text", [b"/", b"/etc", b"../..", b"\xff", b"/dev/shm/cloudtrain-0-" + b"0" * 16])
def test_a_mark_that_the_script_has_changed(text: bytes, begin: Begin, paths: Paths, shared: Path) -> None:
    (paths.input_config / "memory").write_bytes(text)
    remove_memory(paths)
    folder = begin(1).folder
    assert folder is not None and folder.parent == shared


def test_leftovers_of_killed_runtimes(begin: Begin, shared: Path, tmp_path: Path) -> None:
    name = f"cloudtrain-{os.geteuid()}-{{}}"
    old, new, open_to_all = (shared / name.format(kind * 16) for kind in "abc")
    for folder, mode in ((old, 0o700), (new, 0o700), (open_to_all, 0o755)):
        folder.mkdir(mode)
    past = time.time() - STALE_SECONDS - 10
    os.utime(old, (past, past))
    os.utime(open_to_all, (past, past))
    link = shared / name.format("d" * 16)
    link.symlink_to(tmp_path)
    begin(0)
    assert (old.exists(), new.exists(), open_to_all.exists(), link.exists()) == (False, True, True, True)


def test_copies_are_given_up_before_the_memory_is_full(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = begin(0)
    checkpointer = save(memory, tmp_path / "run", monkeypatch)
    assert memory.folder is not None and space_in(memory.folder) > 0
    [data] = memory.folder.glob("*.data")
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1000000 kB\nMemAvailable: 40000 kB\n")
    memory._machine = Machine(processes=proc, groups=tmp_path / "no groups")
    memory._look()
    assert data.stat().st_size == 0 and not list(memory.folder.glob("*.json"))
    assert space_in(memory.folder) == -1
    assert not checkpointer.save(2, {"weights": np.ones(1000)}, to="memory")
    assert checkpointer.save(3, {"weights": np.ones(1000)})
    checkpointer.close()
    assert "checkpoints are not kept in memory: the memory of this host is nearly full" in caplog.text
    assert Checkpointer(tmp_path / "run").steps() == [3]


def test_all_copies_of_all_ranks_are_given_up(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was uploaded meanwhile follows at the next look."""
    memory = begin(0)
    save(memory, tmp_path / "run", monkeypatch)
    save(memory, tmp_path / "other", monkeypatch)
    save(memory, tmp_path / "uploading", monkeypatch)
    assert memory.folder is not None
    first, *rest = files = [*memory.folder.glob("*.data")]
    descriptor = os.open(first, os.O_RDONLY)
    assert lock(descriptor, wait=False, shared=True)
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1000000 kB\nMemAvailable: 40000 kB\n")
    memory._machine = Machine(processes=proc, groups=tmp_path / "no groups")
    memory._look()
    assert [path.stat().st_size > 0 for path in files] == [True] + [False] * len(rest)
    os.close(descriptor)
    (proc / "meminfo").write_text("MemTotal: 1000000 kB\nMemAvailable: 500000 kB\n")
    memory._look()
    assert not any(path.stat().st_size for path in files)


def test_copies_leave_memory_to_the_script(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of 40 % of the memory: one copy fits, as without this folder, and a second one would not be safe."""
    memory = begin(0)
    assert memory.folder is not None
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    memory._machine = Machine(processes=proc, groups=tmp_path / "no groups")
    for available, space in ((600_000, 400_000), (200_000, 0), (100_000, 0)):
        (proc / "meminfo").write_text(f"MemTotal: 1000000 kB\nMemAvailable: {available} kB\n")
        memory._machine.total = 1_000_000 << 10
        memory._look()
        assert space_in(memory.folder) == space << 10

    class Status:
        f_frsize, f_blocks, f_bavail = 1, 1000, 500

    monkeypatch.setattr(os, "statvfs", lambda _path: Status)
    (proc / "meminfo").write_text("MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n")
    memory._look()
    assert space_in(memory.folder) == 300, "data loaders and NCCL use /dev/shm too"
    Status.f_blocks = Status.f_bavail = 0
    memory._look()
    assert space_in(memory.folder) == 700_000 << 10, "a tmpfs of size 0 has no limit"
    Status.f_blocks, Status.f_bavail = 1000, 40
    (memory.folder / "a-copy.data").write_bytes(b"1")
    memory._look()
    assert space_in(memory.folder) == -1


def test_memory_of_an_outer_control_group(begin: Begin, tmp_path: Path) -> None:
    """That of a Slurm job holds the copies that the step of an earlier attempt has left."""
    memory = begin(0)
    assert memory.folder is not None
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/job/step\n")
    (proc / "meminfo").write_text("MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n")
    for name, used in (("job", 96_000), ("job/step", 10_000)):
        (groups / name).mkdir(parents=True)
        (groups / name / "memory.max").write_text("100000\n")
        (groups / name / "memory.current").write_text(f"{used}\n")
    memory._machine = Machine(processes=proc, groups=groups)
    assert memory._machine.memory() == 10_000
    memory._look()
    assert space_in(memory.folder) == 0
    (memory.folder / "a-copy.data").write_bytes(b"1")
    memory._look()
    assert space_in(memory.folder) == -1


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
@pytest.mark.timeout(30)
def test_what_a_script_leaves_in_place_of_files(
    kind: str, begin: Begin, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin(0)
    save(first, tmp_path / "run", monkeypatch)
    assert first.folder is not None
    own = tmp_path / "own"
    own.write_text("of the script")
    for path in (first.folder / "attempt", first.folder / "space.new", paths.input_config / "memory"):
        path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to(own)
    first.end(FAILED, print)
    second = begin(1)
    assert second.folder is not None and space_in(second.folder) > 0
    assert own.read_text() == "of the script"


def test_parts_of_checkpoints_are_not_kept(
    begin: Begin, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, the supervisor cannot remove them from hosts other than the first."""
    memory = begin(0)
    monkeypatch.setenv(VARIABLE, memory.variables[VARIABLE])
    Checkpointer(tmp_path / "run").save(1, {"weights": np.zeros(1000)}, to="memory")
    assert memory.folder is not None
    [path] = memory.folder.glob("*.json")
    header = Header.from_bytes(path.read_bytes())
    part = {**vars(header), "rank": 1, "world_size": 2, "shards": {}}
    path.write_bytes(Header(**part).to_bytes())
    memory.end(FAILED, print)
    assert os.listdir(shared) == []


@pytest.mark.parametrize("root", ["off", "/missing/folder"])
def test_a_host_without_memory(root: str, paths: Paths) -> None:
    memory = CheckpointMemory(paths, 0, {VARIABLE: root})
    assert memory.folder is None
    expected = "off" if root == "off" else "/missing/folder: No such file or directory"
    assert memory.variables == {VARIABLE: expected}
    memory.end(FAILED, print)
