"""Two ranks and their supervisor, as processes to kill.

A journal records what a restore must and may find. One system call appends each line, so it survives a kill:
``restored 3 whole``, ``begun 4``, ``durable 4``, ``failed 5 WHY``. A restore that fails because of the storage is
``refused 0 WHY``, and ends the training.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fault_state

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format import tensor_files
from cloudtrain.errors import CloudtrainError

KEEP = 3
TIME_LIMIT = 60.0
"""Seconds after which a process that hangs shows where, and ends."""


@dataclass(frozen=True)
class Training:
    """The settings of one training, sent to the host as JSON."""

    uri: str
    local: str | None
    journal: str
    framework: str
    when_busy: str
    asynchronous: bool
    every: int
    """Steps from one save to the next."""
    step_seconds: float
    waits: int
    """After every so many saves the training waits for the commit."""

    def checkpointer(self) -> Checkpointer:
        return Checkpointer(
            self.uri,
            keep=KEEP,
            local=self.local,
            when_busy=self.when_busy,
            asynchronous=self.asynchronous,
        )


class Journal:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, event: str, step: int, text: str = "") -> None:
        line = " ".join(f"{event} {step} {text}".split())
        os.write(self._file, f"{line}\n".encode())


def supervise(training: Training, tell_pids: int) -> None:
    """Start the ranks, write their process ids to ``tell_pids``, end all when one has ended."""
    sockets = socket.socketpair()
    ranks = []
    for rank in (0, 1):
        pid = os.fork()
        if pid == 0:
            sockets[1 - rank].close()
            os.close(tell_pids)
            with leaving():
                train(training, rank, sockets[rank])
        ranks.append(pid)
    for end in sockets:
        end.close()
    os.write(tell_pids, f"{ranks[0]} {ranks[1]}".encode())
    os.close(tell_pids)
    ended, _ = os.wait()
    for pid in ranks:
        if pid != ended:
            os.kill(pid, signal.SIGTERM)
    os.wait()


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """End this process after the body, whatever happens, and run nothing of its parent's."""
    try:
        yield
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def train(training: Training, rank: int, peer: socket.socket) -> None:
    """One rank: steps in lockstep with the other, until that, or the supervisor, is gone."""
    faulthandler.dump_traceback_later(TIME_LIMIT, exit=True)
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    tensor_files.PART_SIZE = 1 << 20  # several objects a save: many instants to be killed at
    supervisor = os.getppid()
    journal = Journal(training.journal if rank == 0 else os.devnull)
    tensors = fault_state.allocate()
    with training.checkpointer() as checkpointer:
        step = 0
        if rank == 0:
            try:
                checkpoint = checkpointer.restore()
            except CloudtrainError as error:
                journal.note("refused", step, chain(error))
                return
            step = checkpoint.step if checkpoint else 0
            whole = checkpoint is None or fault_state.is_whole(checkpoint.state, step)
            journal.note("restored", step, "whole" if whole else "torn")
        saver = Saver(training, checkpointer, journal)
        while os.getppid() == supervisor and exchange(peer):
            step += 1
            time.sleep(training.step_seconds)
            if rank == 0:
                fault_state.train(tensors, step)
            if step % training.every == 0:
                # The other rank's state is wrong: if it ever writes, the checkpoint is torn.
                saver.save(step, fault_state.state_of(tensors, step, training.framework))
        saver.wait()


def exchange(peer: socket.socket) -> bool:
    """Whether the other rank lives: the step's one collective."""
    with contextlib.suppress(OSError):
        peer.send(b"s")
        return bool(peer.recv(1))
    return False


class Saver:
    """Saves, continues when the storage fails, and records which saves are durable."""

    def __init__(self, training: Training, checkpointer: Checkpointer, journal: Journal) -> None:
        self._training = training
        self._checkpointer = checkpointer
        self._journal = journal
        self._taken: int | None = None
        self._saves = 0

    def save(self, step: int, state: Any) -> None:
        self._journal.note("begun", step)
        try:
            taken = self._checkpointer.save(step, state, {"loss": fault_state.loss(step)})
        except CloudtrainError as error:
            self._failed(step, error)
            return
        if taken:
            self._taken = step
        self._saves += 1
        if self._saves % self._training.waits == 0 or not self._training.asynchronous:
            self.wait()

    def wait(self) -> None:
        try:
            self._checkpointer.wait()
        except CloudtrainError as error:
            self._failed(self._taken or 0, error)
            return
        if self._taken is not None:
            self._journal.note("durable", self._taken)
            self._taken = None

    def _failed(self, step: int, error: CloudtrainError) -> None:
        self._journal.note("failed", step, chain(error))
        self._taken = None


def chain(error: BaseException) -> str:
    """Such as ``CheckpointError < Unreachable < EndpointConnectionError: step 3 ...``."""
    names = []
    cause: BaseException | None = error
    while cause is not None:
        names.append(type(cause).__name__)
        cause = cause.__cause__
    return f"{' < '.join(names)}: {error}"
