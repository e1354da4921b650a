"""The training of `goodput`, the same for every contestant: two ranks, steps of a fixed time, one allreduce in each.

    _goodput_loop.py cloudtrain|torch.save|torch.save-restarts|none FOLDER URI SECONDS

Ends SECONDS after FOLDER/began, after some steps at least. Rank 0 adds a line to FOLDER/steps after each step: process,
step, time, seconds in the save that followed the step before. Every rank writes its process id to FOLDER.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist

STEP_SECONDS = 0.1
SAVE_EVERY = 50
"""Steps between two checkpoints."""
LEAST_STEPS = 3
"""Also of a run that starts late."""
PARAMETERS = 4 << 20
"""Of 4 bytes."""

State = dict[str, torch.Tensor]


class Saver(Protocol):
    def restore(self, state: State) -> int:
        """Fill ``state`` from the latest checkpoint; returns its step, 0 if there is none."""
        ...

    def maybe_save(self, step: int, state: State) -> None: ...

    def close(self) -> None: ...


class Nothing:
    def restore(self, state: State) -> int:
        return 0

    def maybe_save(self, step: int, state: State) -> None: ...

    def close(self) -> None: ...


class TorchSave(Nothing):
    """`torch.save` to a file, and boto3: as tutorials have it."""

    def __init__(self, uri: str) -> None:
        import boto3

        self._client = boto3.client("s3")
        self._bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        self._key = f"{prefix}/latest.pt"

    def restore(self, state: State) -> int:
        from botocore.exceptions import ClientError

        with tempfile.NamedTemporaryFile() as file:
            try:
                self._client.download_file(self._bucket, self._key, file.name)
            except ClientError:
                return 0
            saved = torch.load(file.name, weights_only=True)
        state["weights"].copy_(saved["weights"])
        return int(saved["step"])

    def maybe_save(self, step: int, state: State) -> None:
        if dist.get_rank() == 0 and step % SAVE_EVERY == 0:
            with tempfile.NamedTemporaryFile() as file:
                torch.save({**state, "step": step}, file)
                file.flush()
                self._client.upload_file(file.name, self._bucket, self._key)


class Ours(Nothing):
    def __init__(self, uri: str) -> None:
        from cloudtrain.checkpoint import Checkpointer

        self._checkpoints = Checkpointer(uri, every=SAVE_EVERY)

    def restore(self, state: State) -> int:
        restored = self._checkpoints.restore(into=state)
        return restored.step if restored else 0

    def maybe_save(self, step: int, state: State) -> None:
        self._checkpoints.maybe_save(step, state)

    def close(self) -> None:
        self._checkpoints.close()


SAVERS = {
    "cloudtrain": Ours,
    "torch.save": TorchSave,
    "torch.save-restarts": TorchSave,
    "none": lambda uri: Nothing(),
}


def main(name: str, folder: Path, uri: str, seconds: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    (folder / f"rank-{rank}.pid").write_text(str(os.getpid()))
    saver = SAVERS[name](uri)
    state = {"weights": torch.zeros(PARAMETERS)}
    step = saver.restore(state)
    assert float(state["weights"][0]) == float(state["weights"][-1]) == step, "the wrong state was restored"
    end = float((folder / "began").read_text()) + seconds
    stalled, first = 0.0, step
    with open(folder / "steps", "a", buffering=1) as log:
        while True:
            step += 1
            time.sleep(STEP_SECONDS)
            state["weights"].add_(1)
            is_over = torch.tensor(int(time.time() >= end and step - first >= LEAST_STEPS))
            dist.all_reduce(is_over)
            if rank == 0:
                log.write(f"{os.getpid()} {step} {time.time()} {stalled}\n")
            began = time.perf_counter()
            saver.maybe_save(step, state)
            stalled = time.perf_counter() - began
            if is_over:
                break
    saver.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
