"""The training loop of `goodput` for all contestants: two ranks, with steps of a fixed time and one allreduce in each.

    _goodput_loop.py SAVER FOLDER URI SECONDS

Ends SECONDS after the time in FOLDER/began, but not before a few steps. After each step, rank 0 appends a line to
FOLDER/steps: process, step, time, and the seconds of the save after the previous step. Every rank writes its process id
to FOLDER.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist

STEP_SECONDS = 0.1
SAVE_EVERY = 50
"""The number of steps between two checkpoints in the storage."""
COPY_EVERY = 10
"""The number of steps between two copies in memory."""
LEAST_STEPS = 3
"""The least number of steps, even of a run that starts late."""
PARAMETERS = 4 << 20
"""The number of parameters, each of 4 bytes."""

State = dict[str, torch.Tensor]


class Saver(Protocol):
    def restore(self, state: State) -> int:
        """Fill ``state`` from the latest checkpoint, and return its step; 0 if there is none."""
        ...

    def maybe_save(self, step: int, state: State) -> None: ...

    def close(self) -> None: ...


class Nothing:
    def restore(self, state: State) -> int:
        return 0

    def maybe_save(self, step: int, state: State) -> None: ...

    def close(self) -> None: ...


class TorchSave(Nothing):
    """`torch.save` to a file, and an upload with boto3, as in tutorials."""

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

        self._checkpoints = Checkpointer(uri, every=SAVE_EVERY, memory_every=COPY_EVERY)

    def restore(self, state: State) -> int:
        restored = self._checkpoints.restore(into=state)
        return restored.step if restored else 0

    def maybe_save(self, step: int, state: State) -> None:
        self._checkpoints.maybe_save(step, state)

    def close(self) -> None:
        self._checkpoints.close()


class DcpAsync(Nothing):
    """`torch.distributed.checkpoint.async_save` with Amazon's S3 writer, and an object with the last complete step.

    Both ranks save what the planner assigns to them, through a second process group, because the messages of the saving
    thread would otherwise be mixed up with those of the training loop's allreduce.
    """

    def __init__(self, uri: str) -> None:
        import boto3
        import torch.distributed.checkpoint as dcp
        from s3torchconnector import S3ClientConfig
        from s3torchconnector.dcp import S3StorageReader, S3StorageWriter

        os.environ["AWS_ENDPOINT_URL"] = os.environ[
            "AWS_ENDPOINT_URL_S3"
        ]  # the only variable that its client reads
        self._dcp, self._uri = dcp, uri
        config, region = S3ClientConfig(force_path_style=True), os.environ["AWS_REGION"]
        self._writer = lambda step: S3StorageWriter(region, f"{uri}/{step}", config)
        self._reader = lambda step: S3StorageReader(region, f"{uri}/{step}", config)
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
        self._client = boto3.client("s3")
        self._bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        self._latest = f"{prefix}/latest"
        self._running: tuple[int, Future[object]] | None = None

    def restore(self, state: State) -> int:
        from botocore.exceptions import ClientError

        try:
            found = self._client.get_object(Bucket=self._bucket, Key=self._latest)
        except ClientError:
            return 0
        step = int(found["Body"].read())
        self._dcp.load(state, storage_reader=self._reader(step), process_group=self._group)
        return step

    def maybe_save(self, step: int, state: State) -> None:
        if step % SAVE_EVERY == 0:
            self.close()
            saved = self._dcp.async_save(state, storage_writer=self._writer(step), process_group=self._group)
            self._running = step, saved
        elif self._running and self._running[1].done():
            self.close()

    def close(self) -> None:
        if self._running:
            step, saved = self._running
            saved.result()
            if dist.get_rank() == 0:
                self._client.put_object(Bucket=self._bucket, Key=self._latest, Body=str(step).encode())
            self._running = None


SAVERS: dict[str, Callable[[str], Saver]] = {
    "cloudtrain": Ours,
    "torch.save": TorchSave,
    "torch.save-restarts": TorchSave,
    "dcp": DcpAsync,
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
