"""Ways to save a state to S3 and restore it, each in a separate process; started by `checkpoint.py`.

    python _checkpoint_contestants.py save|restore NAME URI TENSORS

Prints one JSON object with the measurements of a restore, or of two saves, of which the second reuses the setup of the
first.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np
import torch
from _common import resident

TENSOR_BYTES = 4 << 20
SAVES = 2
THREADS = 4
"""The threads of peers with a configurable number. Neither more nor fewer made any of them faster here."""

State = dict[str, torch.Tensor]


class Contestant(Protocol):
    def save(self, step: int, state: State) -> Callable[[], object]:
        """Returns when training may continue. The returned function blocks until the checkpoint is durable."""
        ...

    def restore(self, step: int, into: State) -> State:
        """Return the state. ``into`` has tensors of the same shapes, for contestants that can fill them in place."""
        ...


class Cloudtrain:
    def __init__(self, uri: str) -> None:
        from cloudtrain.checkpoint import Checkpointer

        self._checkpointer = Checkpointer(uri, keep=None)
        self._checkpointer.steps()  # creates its client now, as the others do

    def save(self, step: int, state: State) -> Callable[[], object]:
        self._checkpointer.save(step, state)
        return self._checkpointer.wait

    def restore(self, step: int, into: State) -> State:
        checkpoint = self._checkpointer.restore(step, into=into)
        assert checkpoint is not None
        state: State = checkpoint.state
        return state


class _Objects:
    """One object per step, written with boto3."""

    def __init__(self, uri: str) -> None:
        import boto3

        parts = urlsplit(uri)
        self._client = boto3.client("s3")
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")

    def _key(self, step: int) -> str:
        return f"{self._prefix}/{step}"


class TorchSave(_Objects):
    def save(self, step: int, state: State) -> Callable[[], object]:
        with tempfile.NamedTemporaryFile() as file:
            torch.save(state, file)
            file.flush()
            self._client.upload_file(file.name, self._bucket, self._key(step))
        return bool

    def restore(self, step: int, into: State) -> State:
        with tempfile.NamedTemporaryFile() as file:
            self._client.download_file(self._bucket, self._key(step), file.name)
            state: State = torch.load(file.name, weights_only=True)
        return state


class Safetensors(_Objects):
    def __init__(self, uri: str) -> None:
        import safetensors.torch

        super().__init__(uri)
        self._format = safetensors.torch

    def save(self, step: int, state: State) -> Callable[[], object]:
        self._client.upload_fileobj(io.BytesIO(self._format.save(state)), self._bucket, self._key(step))
        return bool

    def restore(self, step: int, into: State) -> State:
        data = io.BytesIO()
        self._client.download_fileobj(self._bucket, self._key(step), data)
        state: State = self._format.load(data.getvalue())
        return state


class _Dcp:
    """`torch.distributed.checkpoint` with Amazon's S3 writer and reader."""

    def __init__(self, uri: str) -> None:
        import torch.distributed.checkpoint as dcp
        from s3torchconnector import S3ClientConfig, dcp as s3

        self._dcp, self._s3 = dcp, s3
        self._uri = uri
        self._region = os.environ["AWS_REGION"]
        self._config = S3ClientConfig(force_path_style=True)

    def _writer(self, step: int) -> Any:
        place = f"{self._uri}/{step}"
        return self._s3.S3StorageWriter(self._region, place, self._config, thread_count=THREADS)

    def restore(self, step: int, into: State) -> State:
        reader = self._s3.S3StorageReader(self._region, f"{self._uri}/{step}", self._config)
        self._dcp.load(into, storage_reader=reader)
        return into


class DcpSave(_Dcp):
    def save(self, step: int, state: State) -> Callable[[], object]:
        self._dcp.save(state, storage_writer=self._writer(step))
        return bool


class DcpAsyncSave(_Dcp):
    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        # One stager for all saves: it keeps its buffers. Pinned memory needs a GPU.
        self._stager = DefaultStager(StagingOptions(False, False, False, False))

    def save(self, step: int, state: State) -> Callable[[], object]:
        writer = self._writer(step)
        return self._dcp.async_save(state, storage_writer=writer, async_stager=self._stager).result


CONTESTANTS: dict[str, Callable[[str], Contestant]] = {
    "cloudtrain": Cloudtrain,
    "torch.save + boto3": TorchSave,
    "safetensors + boto3": Safetensors,
    "DCP save": DcpSave,
    "DCP async_save": DcpAsyncSave,
}


def make_state(tensors: int) -> State:
    noise = np.random.default_rng(0).integers(0, 2**31, tensors * TENSOR_BYTES // 4, dtype=np.int32)
    pieces = torch.from_numpy(noise).view(torch.float32).chunk(tensors)
    return {f"layer.{number}": piece.clone() for number, piece in enumerate(pieces)}


def train(state: State) -> None:
    """Change every tensor, so that none can be reused from the previous save."""
    for tensor in state.values():
        tensor.view(torch.int32).add_(1)


def plain_copy(state: State) -> float:
    """The seconds of one copy into an existing buffer, which is the minimum stall of a save."""
    buffer = {name: tensor.clone() for name, tensor in state.items()}
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        for name, tensor in state.items():
            buffer[name].copy_(tensor)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def save(contestant: Contestant, state: State) -> dict[str, Any]:
    figures: dict[str, Any] = {"copy": plain_copy(state), "stall": [], "durable": [], "cpu": []}
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    for step in range(1, SAVES + 1):
        train(state)
        start, cpu = time.perf_counter(), time.process_time()
        wait = contestant.save(step, state)
        figures["stall"].append(time.perf_counter() - start)
        wait()
        figures["durable"].append(time.perf_counter() - start)
        figures["cpu"].append(time.process_time() - cpu)
    figures["memory"] = resident("VmHWM") - before
    return figures


def restore(contestant: Contestant, expected: State) -> dict[str, Any]:
    for _ in range(SAVES):
        train(expected)
    into = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start, cpu = time.perf_counter(), time.process_time()
    state = contestant.restore(SAVES, into)
    figures = {"restore": time.perf_counter() - start, "restore_cpu": time.process_time() - cpu}
    figures["restore_memory"] = resident("VmHWM") - before
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name].view(torch.int32), expected[name].view(torch.int32)) for name in state)
    return figures


def main() -> None:
    do, name, uri, tensors = sys.argv[1:]
    state = make_state(int(tensors))
    run = save if do == "save" else restore
    print(json.dumps(run(CONTESTANTS[name](uri), state)))


if __name__ == "__main__":
    main()
