"""The machine on which the trainings run, as a process.

Starts trainings by fork, since a fresh interpreter takes longer than a round. Each line of its input is a call,
``{"do": "train", ...}``, each of its output what that returned. It adopts the processes that lose their parent
(PR_SET_CHILD_SUBREAPER, prctl(2)), so that it knows when the last of a training has ended.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import signal
import sys
import time
import warnings
from dataclasses import asdict, dataclass, field
from typing import Any

import botocore_data
import fault_state
import torch  # noqa: F401  imported once, for all
from fault_training import TIME_LIMIT, Training, leaving, supervise

from cloudtrain.checkpoint import Checkpoint, Checkpointer
from cloudtrain.errors import CheckpointError

PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Found:
    """The checkpoints that a fresh process finds after a kill."""

    step: int | None = None
    torn: list[int] = field(default_factory=list)
    """Steps whose restored state differs from the saved one."""
    lost: list[str] = field(default_factory=list)
    """Messages about committed steps that could not be restored."""


class Host:
    def __init__(self) -> None:
        self._pids: dict[str, int] = {}

    def train(self, **training: Any) -> None:
        """Returns when both ranks have been started."""
        read, write = os.pipe()
        supervisor = os.fork()
        if supervisor == 0:
            with leaving():
                os.setsid()
                os.close(read)
                supervise(Training(**training), write)
        os.close(write)
        with open(read) as pipe:
            ranks = [int(pid) for pid in pipe.read().split()]
        self._pids = {"supervisor": supervisor, **{f"rank {rank}": pid for rank, pid in enumerate(ranks)}}

    def kill(self, victim: str, grace: float) -> bool:
        """Send SIGKILL to a process or to the whole ``group``. Returns False if the training had ended by itself.

        Waits until all of its processes have ended; those that live for ``grace`` seconds are killed too.
        """
        group = self._pids["supervisor"]
        alive = os.waitid(os.P_PID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        try:
            if victim == "group":
                os.killpg(group, signal.SIGKILL)
            else:
                os.kill(self._pids[victim], signal.SIGKILL)
        except ProcessLookupError:
            alive = False
        deadline = time.monotonic() + grace
        while _children():
            if time.monotonic() > deadline:
                os.killpg(group, signal.SIGKILL)
            time.sleep(0.002)
        return alive

    def look(self, uri: str, local: str | None, everything: bool) -> dict[str, Any]:
        """Restore in a new process: the latest step, or with ``everything`` all committed steps."""
        read, write = os.pipe()
        if os.fork() == 0:
            with leaving(), open(write, "w") as pipe:
                json.dump(asdict(_look(uri, local, everything)), pipe)
        os.close(write)
        with open(read) as pipe:
            found: dict[str, Any] = json.load(pipe)
        os.wait()
        return found


def _look(uri: str, local: str | None, everything: bool) -> Found:
    faulthandler.dump_traceback_later(TIME_LIMIT, exit=True)
    found = Found()
    checkpointer = Checkpointer(uri, local=local)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        latest = checkpointer.restore()
    found.lost += [str(warning.message) for warning in caught]
    if latest is None:
        return found
    found.step = latest.step
    if not _is_whole(latest):
        found.torn.append(latest.step)
    for step in checkpointer.steps() if everything else ():
        if step == latest.step:
            continue
        try:
            checkpoint = checkpointer.restore(step)
        except CheckpointError as error:
            found.lost.append(str(error))
        else:
            assert checkpoint is not None
            if not _is_whole(checkpoint):
                found.torn.append(step)
    return found


def _is_whole(checkpoint: Checkpoint) -> bool:
    wanted = {"loss": fault_state.loss(checkpoint.step)}
    return fault_state.is_whole(checkpoint.state, checkpoint.step) and checkpoint.metrics == wanted


def _children() -> bool:
    """Whether a child is alive. Reaps those that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def main() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    botocore_data.load("s3")
    gc.freeze()
    host = Host()
    for line in sys.stdin:
        call = json.loads(line)
        print(json.dumps(getattr(host, call.pop("do"))(**call)), flush=True)


if __name__ == "__main__":
    main()
