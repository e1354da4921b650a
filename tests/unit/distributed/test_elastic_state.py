"""Elastic states in a world of one rank: commit, restore, run, and commit files."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cloudtrain.distributed.torch as hvd
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.contract import PREEMPTED, Notice
from cloudtrain.contract.trackers import RUN_ID
from cloudtrain.distributed import CollectiveError
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.torch import elastic
from cloudtrain.distributed.torch.elastic import _state
from cloudtrain.distributed.torch.elastic._commit import Commit, CommitFile, commit_file
from cloudtrain.distributed.torch.elastic._handover import Handover
from cloudtrain.environment import commits
from cloudtrain.errors import StorageError


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def make_state(**values: Any) -> elastic.TorchState:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    return elastic.TorchState(model, optimizer, scheduler=scheduler, **values)


def take(state: elastic.ObjectState, file: CommitFile | None, handover: Handover | None = None) -> None:
    commit = state.keep_in(file, handover)
    assert commit is not None
    state.take(commit)


def step(state: elastic.TorchState) -> None:
    state.optimizer.zero_grad()
    state.model(torch.tensor([[1.0, 2.0], [3.0, 5.0]])).square().sum().backward()
    state.optimizer.step()
    state.scheduler.step()


def content(state: elastic.TorchState) -> list[Any]:
    tensors = [*state.model.state_dict().values()]
    for entry in state.optimizer.state_dict()["state"].values():
        tensors.extend(entry.values())
    rate = state.optimizer.param_groups[0]["lr"]
    return [*(tensor.tolist() for tensor in tensors), rate, state.scheduler.last_epoch]


def test_restore_can_be_repeated() -> None:
    state = make_state(batch=0, seen=[])
    objects = (state.model, state.optimizer)
    step(state)
    state.batch = 7
    state.seen.append("a")
    state.commit()
    committed = content(state)
    for _ in range(2):
        step(state)
        state.batch += 1
        state.seen.append("b")
        assert content(state) != committed
        state.restore()
        assert (content(state), state.batch, state.seen) == (committed, 7, ["a"])
    assert (state.model, state.optimizer) == objects


def test_restore_before_the_first_commit_restores_the_start() -> None:
    state = make_state(batch=3)
    start = content(state)
    step(state)
    state.batch = 4
    state.restore()
    assert (content(state)[: len(start)], state.batch) == (start, 3)


def test_after_a_failure_the_function_is_called_with_the_last_commit() -> None:
    state = elastic.ObjectState(batch=0)
    calls, resets = [], []
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])

    @elastic.run
    def train(state: elastic.ObjectState, limit: int, *, text: str) -> str:
        calls.append(state.batch)
        while state.batch < limit:
            state.batch += 1
            if len(calls) < 3 and state.batch == 3 * len(calls):
                raise CollectiveError("a rank is late")
            if state.batch % 2 == 0:
                state.commit()
        return text

    assert train(state, 9, text="done") == "done"
    assert (calls, resets) == ([0, 2, 4], [1, 1])
    assert train.__name__ == "train"


def test_a_permanent_failure_propagates() -> None:
    calls = []

    @elastic.run
    def train(state: elastic.ObjectState) -> None:
        calls.append(state.batch)
        raise CollectiveError("shapes differ")

    with pytest.raises(CollectiveError, match="shapes differ"):
        train(elastic.ObjectState(batch=5))
    assert calls == [5, 5, 5]


@pytest.mark.parametrize("skip_sync", [False, True])
def test_an_interrupt_keeps_the_current_state(skip_sync: bool) -> None:
    calls, resets, syncs = [], [], []

    class Watched(elastic.ObjectState):
        def sync(self) -> None:
            syncs.append(self.batch)
            super().sync()

    state = Watched(batch=0)
    state.register_reset_callbacks([lambda: resets.append(state.batch)])

    @elastic.run
    def train(state: elastic.ObjectState) -> None:
        calls.append(state.batch)
        if state.batch == 0:
            state.batch = 4
            raise elastic.HostsUpdatedInterrupt(skip_sync)

    train(state)
    assert (calls, resets, syncs) == ([0, 4], [4], [0] if skip_sync else [0, 4])


def test_a_custom_state() -> None:
    class Own(elastic.State):
        value = saved = 0

        def save(self) -> None:
            self.saved = self.value

        def restore(self) -> None:
            self.value = self.saved

        def sync(self) -> None:
            self.save()

    @elastic.run
    def train(state: Own) -> int:
        state.value += 1
        if state.value == 1:
            state.commit()
            state.value = 10
            raise CollectiveError("a rank is late")
        return state.value

    assert train(Own()) == 2


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({}, None),
        ({"CLOUDTRAIN_RUN_DIR": "/run"}, None),
        ({"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_ERROR_FILE": ""}, None),
        ({"TORCHELASTIC_RUN_ID": "a", "CLOUDTRAIN_RUN_DIR": "/run"}, "/run/elastic/run-2.pt"),
        (
            {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_ERROR_FILE": "/tmp/t_x/a_y/attempt_1/0/error.json"},
            "/tmp/t_x/a_y/elastic/run-2.pt",
        ),
    ],
)
def test_the_path_of_the_commit_file(environ: dict[str, str], path: str | None) -> None:
    file = commit_file(2, environ)
    assert (file and str(file.path)) == path


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a rank started by an elastic agent; returns the folder of the commits."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    monkeypatch.setenv("CLOUDTRAIN_RUN_DIR", str(tmp_path))
    return tmp_path / "elastic"


def test_another_process_resumes_from_the_file(agent: Path) -> None:
    file = commit_file(0)
    assert file is not None
    first = make_state(batch=0)
    assert first.keep_in(file) is None
    for first.batch in (1, 2):
        step(first)
        first.commit()
    (agent / ".cloudtrain-tmp-torn").write_bytes(b"torn")
    second = make_state(batch=0)
    take(second, file)
    assert [path.name for path in agent.iterdir()] == ["run-0.pt"]
    assert [path.stat().st_mode & 0o777 for path in (agent, *agent.iterdir())] == [0o700, 0o600]
    second.sync()
    assert (second.batch, content(second)) == (2, content(first))


def test_a_failed_write_of_a_commit(agent: Path) -> None:
    agent.touch()
    state = elastic.ObjectState(batch=0)

    @elastic.run
    def train(state: elastic.ObjectState) -> None:
        state.commit()

    with pytest.raises(StorageError, match=f"the commit cannot be written to {agent}{os.sep}run-"):
        train(state)


@pytest.mark.parametrize("mode", ["file", "folder"])
def test_a_commit_that_another_user_could_have_written_is_not_read(agent: Path, mode: str) -> None:
    file = commit_file(0)
    assert file is not None
    state = elastic.ObjectState(batch=1)
    state.keep_in(file)
    state.commit()
    (file.path if mode == "file" else agent).chmod(0o777)
    with pytest.raises(StorageError, match="another user can write to"):
        elastic.ObjectState(batch=0).keep_in(file)


def test_after_a_notice_the_next_attempt_continues_with_the_state_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that is newer than the last commit, and than the file of the host."""
    monkeypatch.setenv("CLOUDTRAIN_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    state = make_state(batch=0, shape=(1, 2))
    handover = Handover((tmp_path / "shared").as_uri(), "job", 0)
    assert state.keep_in(CommitFile(tmp_path / "own" / "run-0.pt"), handover) is None
    state.commit()
    step(state)
    state.batch = 7
    state.check_host_updates()
    assert not (tmp_path / "shared").exists(), "there is no notice"
    Notice(1.0, "taken back").write(tmp_path)
    with pytest.raises(SystemExit) as left:
        state.check_host_updates()
    assert left.value.code == PREEMPTED
    other = make_state(batch=0, shape=())
    take(other, CommitFile(tmp_path / "own" / "run-0.pt"), handover)
    assert content(other) == content(state)
    assert (other.batch, other.shape) == (7, (1, 2))


def test_a_damaged_or_unsafe_commit_is_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handover = Handover(tmp_path.as_uri(), "job", 0)
    assert handover.read() is None
    with pytest.raises(
        InvalidArgument, match=r"the state holds a pathlib.PosixPath, which is not handed over"
    ):
        handover.write(Commit(1, {"folder": tmp_path}))
    monkeypatch.setenv("CLOUDTRAIN_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    Notice(1.0, "taken back").write(tmp_path)
    for _ in range(2):
        handover.leave_if_preempted(lambda: Commit(1, {"folder": tmp_path}))
    assert "does not move to other hosts now: the state holds a" in caplog.text
    assert caplog.text.count("does not move") == 1
    assert handover.read() is None
    handover.write(Commit(1, {"weights": torch.ones(3)}))
    [path] = tmp_path.glob("elastic/*/run-0/*1.pt")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match=r"run-0/000000000001\.pt is damaged"):
        handover.read()


def test_a_commit_is_handed_over_within_its_job(tmp_path: Path) -> None:
    """Another job may have the same checkpoint URI, and begins at its start."""
    Handover(tmp_path.as_uri(), "first", 0).write(Commit(1, {"batch": 5}))
    assert Handover(tmp_path.as_uri(), "second", 0).read() is None
    assert Handover(tmp_path.as_uri(), "first", 1).read() is None
    assert Handover(tmp_path.as_uri(), "first", 0).read() == Commit(1, {"batch": 5})


def test_a_host_that_was_only_paused_replaces_no_newer_commit(tmp_path: Path) -> None:
    paused, other = (Handover(tmp_path.as_uri(), "job", 0) for _ in range(2))
    other.write(Commit(9, {"batch": 9}))
    paused.write(Commit(5, {"batch": 5}))
    assert Handover(tmp_path.as_uri(), "job", 0).read() == Commit(9, {"batch": 9})
    assert [path.name for path in tmp_path.glob("elastic/*/run-0/*")] == ["000000000009.pt"]
    other.write(Commit(12, {"batch": 12}))
    assert [path.name for path in tmp_path.glob("elastic/*/run-0/*")] == ["000000000012.pt"]


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Begins an attempt of a job as its process would; returns the run folder of its host."""
    for name, value in {
        "SM_CURRENT_HOST": "algo-1",
        "TORCHELASTIC_RUN_ID": "a",
        "CLOUDTRAIN_CHECKPOINT_URI": (tmp_path / "checkpoints").as_uri(),
        RUN_ID: "job",
    }.items():
        monkeypatch.setenv(name, value)
    numbers = itertools.count()

    def begin() -> Path:
        number = next(numbers)
        run = tmp_path / f"run-{number}"
        run.mkdir()
        monkeypatch.setenv("CLOUDTRAIN_RUN_DIR", str(run))
        monkeypatch.setenv("CLOUDTRAIN_ATTEMPT", str(number))
        monkeypatch.setattr(_state, "_runs", itertools.count())
        monkeypatch.setattr(commits, "_newest", commits.CommitNumber(0, 0))
        return run

    return begin


def test_the_newer_one_of_a_commit_and_a_checkpoint_is_continued(attempt: Callable[[], Path]) -> None:
    """A state that was handed over does not put a training back that has saved a checkpoint since."""
    first = []
    ends: dict[int, Path | None] = {}

    @elastic.run
    def train(state: elastic.ObjectState, checkpointer: Checkpointer) -> None:
        first.append(state.step)
        for step in range(state.step + 1, 100):
            if step in ends and (folder := ends[step]) is None:
                raise ConnectionError("its host is lost")
            if step in ends:
                Notice(1.0, "taken back").write(folder)
            state.step = step
            state.commit()
            if step % 4 == 0:
                checkpointer.save(step, {"step": step})

    for end, is_taken_back in ((6, True), (10, False), (11, True), (14, False), (18, True), (21, True)):
        ends = {end: attempt() if is_taken_back else attempt() and None}
        checkpointer = Checkpointer()
        found = checkpointer.restore()
        with pytest.raises(SystemExit if is_taken_back else ConnectionError):
            train(elastic.ObjectState(step=found.state["step"] if found else 0), checkpointer)
        checkpointer.wait()
    assert first == [0, 6, 8, 11, 12, 18]


def test_a_checkpoint_of_the_second_run_is_not_put_back_by_an_older_commit(
    attempt: Callable[[], Path],
) -> None:
    """Also though the script has called its first run again in between."""

    @elastic.run
    def train(state: elastic.ObjectState) -> None:
        state.commit()

    attempt()
    train(elastic.ObjectState(step=1))
    train(state := elastic.ObjectState(step=2))  # hands its commit over
    state.step = 3
    state.commit()
    checkpointer = Checkpointer()
    checkpointer.save(3, {"step": 3})
    checkpointer.wait()
    attempt()
    found = Checkpointer().restore()
    assert found and found.step == 3
    train(elastic.ObjectState(step=1))
    begins = []
    elastic.run(lambda state: begins.append(state.step))(elastic.ObjectState(step=found.state["step"]))
    assert begins == [3]


def test_the_checkpoint_of_another_job_hides_no_commit(
    attempt: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may begin with the checkpoint of another one, which has committed more often."""
    monkeypatch.setenv(RUN_ID, "first")
    attempt()
    commits.committed(commits.CommitNumber(1, 3))
    checkpointer = Checkpointer()
    checkpointer.save(5, {"step": 5})
    checkpointer.wait()
    monkeypatch.setenv(RUN_ID, "second")
    begins = []

    @elastic.run
    def train(state: elastic.ObjectState, folder: Path) -> None:
        begins.append(state.step)
        state.step += 1
        Notice(1.0, "taken back").write(folder)
        state.commit()

    for _ in range(2):
        folder = attempt()
        found = Checkpointer().restore()
        assert found
        with pytest.raises(SystemExit):
            train(elastic.ObjectState(step=found.state["step"]), folder)
    assert begins == [5, 6]


def test_a_failure_after_a_notice_hands_the_last_commit_over(attempt: Callable[[], Path]) -> None:
    """A host that is taken back may be gone before the next commit."""
    folder, begins = attempt(), []

    @elastic.run
    def train(state: elastic.ObjectState) -> None:
        begins.append(state.step)
        if not state.step:
            state.step = 1
            state.commit()
            state.step = 2
            Notice(1.0, "taken back").write(folder)
            raise CollectiveError("another host is gone")

    with pytest.raises(SystemExit):
        train(elastic.ObjectState(step=0))
    attempt()
    train(elastic.ObjectState(step=0))
    assert begins == [0, 1]


def test_a_script_that_fails_after_its_training_does_not_repeat_it(attempt: Callable[[], Path]) -> None:
    called = []

    @elastic.run
    def train(state: elastic.ObjectState) -> None:
        called.append(state.step)
        while state.step < 3:
            state.step += 1
            state.commit()

    for _ in range(2):
        attempt()
        state = elastic.ObjectState(step=0)
        train(state)
        assert state.step == 3
    assert called == [0, 3]


def test_a_commit_that_is_none_is_not_taken_over(tmp_path: Path) -> None:
    """Another user who can write there can also make its hash."""
    handover = Handover(tmp_path.as_uri(), "job", 0)
    for strange in ({"number": 1}, {"number": "1", "saved": {}}, {"number": 1, "saved": [1]}):
        handover.write(Commit(1, {}))
        [path] = tmp_path.glob("elastic/*/run-0/*.pt")
        torch.save(strange, content := io.BytesIO())
        path.write_bytes(hashlib.sha256(content.getvalue()).digest() + content.getvalue())
        with pytest.raises(StorageError, match=r"run-0/000000000001\.pt is damaged"):
            handover.read()


class Failing:
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> str:
        raise self._error


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda batch: batch / 2, "the state holds a value that cannot be pickled"),
        (Failing(NotImplementedError("no such kernel")), "the state holds a value that cannot be pickled"),
        (Failing(RecursionError()), "the state holds a value that cannot be pickled"),
        (Failing(MemoryError()), "the memory of this host is too small"),
    ],
    ids=["function", "tensor", "deep", "large"],
)
def test_a_value_that_cannot_be_handed_over_does_not_end_the_training_at_a_notice(
    value: Any,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    Notice(1.0, "taken back").write(tmp_path)
    handover = Handover(tmp_path.as_uri(), "job", 0)
    handover.leave_if_preempted(lambda: Commit(1, {"value": value}))
    assert f"does not move to other hosts now: {message}" in caplog.text
    Handover(tmp_path.as_uri(), "job", 1).keep(Commit(1, {"value": value}))
    assert f"repeats the training that has ended: {message}" in caplog.text
