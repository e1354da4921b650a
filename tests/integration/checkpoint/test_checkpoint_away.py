"""Saves and restores while the storage is away, or delivers altered bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_memory import make_host_memory
from pure_state import same, state_of
from s3_proxy import Answer, Exchange, s3_proxy

from cloudtrain.checkpoint import Checkpointer, candidates
from cloudtrain.checkpoint.checkpointer import REPLACE_SECONDS
from cloudtrain.checkpoint.failed_saves import LEAVE_SECONDS
from cloudtrain.checkpoint.memory.files import SPACE, data_path
from cloudtrain.checkpoint.memory.source import checkpoints_in
from cloudtrain.errors import CheckpointError
from cloudtrain.storage.retry_policy import LIMIT_VARIABLE
from cloudtrain.testing import S3Server


class Storage:
    """An S3 service that a test can take away, and whose answers it can alter."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.away = False
        self.hangs = threading.Event()
        """Whether requests are not answered; see `goes_on`."""
        self.goes_on = threading.Event()
        """Ends that."""
        self.altered: dict[str, int] = {}
        """How often the objects whose keys end like this arrive with one bit flipped."""
        self.cut: dict[str, int] = {}
        """The same, for bodies that end too early."""

    def fault(self, exchange: Exchange) -> Answer | None:
        if self.hangs.is_set():
            self.goes_on.wait()
        if self.away:
            return None
        status, headers, body = exchange.forward()
        if exchange.method == "GET" and body and "list-type" not in exchange.path:
            if _take(self.altered, exchange.path):
                headers = [(name, value) for name, value in headers if "checksum" not in name.lower()]
                body = body[:-1] + bytes([body[-1] ^ 1])
            if _take(self.cut, exchange.path):
                body = body[: len(body) // 2]
        return status, headers, body


def _take(faults: dict[str, int], path: str) -> bool:
    for end, left in faults.items():
        if path.partition("?")[0].endswith(end) and left:
            faults[end] -= 1
            return True
    return False


@pytest.fixture
def storage(s3: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    storage = Storage(f"s3://{s3}/run")
    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], storage.fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        yield storage
        storage.goes_on.set()


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a host that keeps copies in memory."""
    return make_host_memory(tmp_path / "memory", monkeypatch)


def test_the_training_continues_and_the_next_save_is_taken(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0.3")
    checkpointer = Checkpointer(storage.uri, every=1)
    assert checkpointer.maybe_save(1, state_of(1))
    checkpointer.wait()
    storage.away = True
    for step in (2, 3):
        assert checkpointer.maybe_save(step, state_of(step))
        checkpointer._background.wait()
    storage.away = False
    assert checkpointer.maybe_save(4, state_of(4))
    checkpointer.close()  # the failures are made up for
    assert checkpointer.steps() == [1, 4]
    said = [record.message for record in caplog.records if "was not saved" in record.message]
    assert [line.partition(" was")[0] for line in said] == ["checkpoint 2", "checkpoint 3"]
    assert storage.uri in said[1]
    assert said[1].endswith("failed saves in a row: 2, the last is step 1")


def test_a_save_that_waits_is_replaced_by_the_next(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "60")
    checkpointer = Checkpointer(storage.uri)
    checkpointer.save(1, state_of(1))
    checkpointer.wait()
    storage.away = True
    began = time.monotonic()
    for step in (2, 3):
        assert checkpointer.save(step, state_of(step))
    assert time.monotonic() - began < 45
    storage.away = False
    checkpointer.close()
    assert checkpointer.steps() == [1, 3]


def test_copies_in_memory_do_not_wait_for_storage_that_hangs(
    storage: Storage, memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = Checkpointer(storage.uri, every=1)
    assert checkpointer.maybe_save(1, state_of(1))
    checkpointer.wait()
    storage.hangs.set()
    for step in (2, 3, 4):
        assert checkpointer.maybe_save(step, state_of(step))
        checkpointer._sealing.wait()
    said = [record.message for record in caplog.records if "was not saved" in record.message]
    assert said[0].startswith(
        f"checkpoint 3 was not saved: {storage.uri} does not answer; it is only in the memory"
    )
    with pytest.warns(
        RuntimeWarning, match=f"{storage.uri} does not answer; restoring from the memory of this host"
    ):
        restored = Checkpointer(storage.uri).restore()
    assert restored and restored.step == 4 and same(restored.state, state_of(4))
    storage.goes_on.set()
    storage.hangs.clear()
    assert checkpointer.maybe_save(5, state_of(5))
    checkpointer.close()
    assert checkpointer.steps()[-1] == 5


def test_a_save_waits_for_storage_that_hangs_if_there_is_no_space_in_memory(
    storage: Storage, memory: Path
) -> None:
    (memory / SPACE).write_text("1")
    with Checkpointer(storage.uri, every=1, keep=None) as checkpointer:
        assert checkpointer.maybe_save(1, state_of(1))
        checkpointer.wait()
        storage.hangs.set()
        assert checkpointer.maybe_save(2, state_of(2))
        answers = threading.Timer(REPLACE_SECONDS + 1, storage.goes_on.set)
        answers.start()
        assert checkpointer.maybe_save(3, state_of(3))
        answers.join()
    assert Checkpointer(storage.uri).steps()[-1] == 3


@pytest.mark.parametrize(
    ("wanted", "damaged", "missing"),
    [(1, (), ()), ("latest", (3, 4), ()), ("latest", (4,), ()), ("latest", (), (4,))],
)
def test_storage_that_answers_late_is_waited_for_if_no_copy_in_memory_will_do(
    storage: Storage,
    memory: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: int | str,
    damaged: tuple[int, ...],
    missing: tuple[int, ...],
) -> None:
    """Step 3 in memory must not replace step 4, which is committed."""
    with Checkpointer(storage.uri, keep=None) as checkpointer:
        for step in (1, 2, 3, 4):
            checkpointer.save(step, state_of(step))
            checkpointer.wait()
    for step, copy in checkpoints_in(memory)[storage.uri].items():
        if step in damaged:
            with open(data_path(copy.parts[0].path), "r+b") as file:
                [byte] = file.read(1)
                file.seek(0)
                file.write(bytes([byte ^ 1]))
        if step in missing:
            copy.remove()
    monkeypatch.setattr(candidates, "AWAY_SECONDS", 0.3)
    storage.hangs.set()
    answers = threading.Timer(1, storage.goes_on.set)
    answers.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        restored = Checkpointer(storage.uri).restore(wanted)
    answers.join()
    step = 1 if wanted == 1 else 4
    assert restored and (restored.step, restored.source) == (step, storage.uri)
    assert same(restored.state, state_of(step))


def test_a_save_that_ends_the_training_is_waited_for(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "60")
    storage.away = True
    with Checkpointer(storage.uri) as checkpointer:
        checkpointer.save(1, state_of(1))
        threading.Timer(1.0, setattr, (storage, "away", False)).start()
    assert Checkpointer(storage.uri).steps() == [1]


def test_a_last_save_that_fails_is_raised(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0.3")
    storage.away = True
    checkpointer = Checkpointer(storage.uri)
    checkpointer.save(1, state_of(1))
    with pytest.raises(CheckpointError, match="checkpoint 1 was not saved: s3://"):
        checkpointer.close()


def test_a_restore_waits_for_the_storage(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "30")
    Checkpointer(storage.uri, asynchronous=False).save(1, state_of(1))
    storage.away = True
    threading.Timer(1.0, setattr, (storage, "away", False)).start()
    checkpoint = Checkpointer(storage.uri).restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(1))


PREEMPTED = """
    import atexit, sys, time
    import numpy as np
    from cloudtrain import environment

    atexit.register(lambda: print(environment.preemption().deadline - time.time()))  # after all other functions
    from cloudtrain.checkpoint import Checkpointer

    checkpointer = Checkpointer(sys.argv[1], every=10**6)
    for step in range(1, 10**6):
        checkpointer.maybe_save(step, {"step": step})
        if step == 1:
            print("trains", flush=True)
        environment.exit_if_preempted()
        time.sleep(0.01)
"""


@pytest.mark.parametrize(("back", "grace", "steps"), [(1.5, 60, 1), (None, 6, 0)])
def test_a_preempted_training_saves_until_the_grace_ends(
    back: float | None, grace: float, steps: int, storage: Storage
) -> None:
    environ = {**os.environ, LIMIT_VARIABLE: "0.2", "CLOUDTRAIN_STOP_GRACE": str(grace)}
    command = [sys.executable, "-c", textwrap.dedent(PREEMPTED), storage.uri]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout
        assert training.stdout.readline() == "trains\n"
        storage.away = True
        training.send_signal(signal.SIGTERM)
        if back:
            threading.Timer(back, setattr, (storage, "away", False)).start()
        seconds_left, _ = training.communicate(timeout=120)
        assert training.returncode == 75
    if back:
        assert float(seconds_left) > 0
    else:  # a slow machine takes long to end the process
        assert -60 < float(seconds_left) <= LEAVE_SECONDS
    storage.away = False
    assert len(Checkpointer(storage.uri).steps()) == steps


@pytest.mark.parametrize("kind", ["altered", "cut"])
@pytest.mark.parametrize("end", ["manifest.json", "tree.json", ".safetensors"])
def test_an_object_that_arrives_damaged_is_read_again(kind: str, end: str, storage: Storage) -> None:
    Checkpointer(storage.uri, asynchronous=False).save(1, state_of(1))
    getattr(storage, kind)[end] = 1
    checkpoint = Checkpointer(storage.uri).restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(1))
    assert getattr(storage, kind)[end] == 0


@pytest.mark.parametrize("kind", ["altered", "cut"])
@pytest.mark.parametrize("end", ["manifest.json", "tree.json", ".safetensors"])
def test_after_an_object_that_is_always_damaged_the_checkpoint_before_is_restored(
    kind: str, end: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0.3")
    checkpointer = Checkpointer(storage.uri, asynchronous=False)
    for step in (1, 2):
        checkpointer.save(step, state_of(step))
    keys = [found.key for found in Checkpointer(storage.uri)._stores[0]._store.list("step-000000000002")]
    (victim,) = (key for key in keys if key.endswith(end))
    getattr(storage, kind)[victim] = 1000
    with pytest.warns(RuntimeWarning, match="checkpoint 2 in .* is damaged"):
        checkpoint = Checkpointer(storage.uri).restore()
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert same(checkpoint.state, state_of(1))
