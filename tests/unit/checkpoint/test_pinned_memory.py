"""The host memory that GPUs copy checkpoints to, on a CUDA that only keeps what is locked."""

from __future__ import annotations

import pytest
import torch

from cloudtrain._system.memory import private_memory
from cloudtrain.checkpoint.tensors.torch import pinned

NBYTES = (5 << 20) + 12
"""Not a power of two."""


class _Runtime:
    def __init__(self, code: int) -> None:
        self.code = code
        self.locked: dict[int, int] = {}

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:
        if not self.code:
            self.locked[address] = nbytes
        return self.code

    def cudaHostUnregister(self, address: int) -> int:
        del self.locked[address]
        return 0


def cuda(monkeypatch: pytest.MonkeyPatch, code: int) -> _Runtime:
    runtime = _Runtime(code)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    return runtime


def test_exactly_the_bytes_are_locked_until_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = cuda(monkeypatch, 0)
    memory = pinned(private_memory(NBYTES))
    assert memory.nbytes == NBYTES
    assert list(runtime.locked.values()) == [NBYTES]
    tensor = torch.frombuffer(memory[8:16], dtype=torch.float64)
    assert tensor.data_ptr() - 8 in runtime.locked
    del memory
    assert runtime.locked, "a tensor uses it"
    del tensor
    assert not runtime.locked


def test_memory_that_cannot_be_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda(monkeypatch, 2)
    with pytest.warns(UserWarning, match=r"5 MiB of host memory cannot be locked .*CUDA error 2.*ulimit -l"):
        memory = pinned(private_memory(NBYTES))
    memory[0] = 1
    assert memory.nbytes == NBYTES
