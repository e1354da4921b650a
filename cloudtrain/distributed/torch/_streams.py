"""CUDA streams of the tensors that collectives read and write. Does nothing for tensors of the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class WritingStreams:
    """The streams that write to a buffer, until another stream reads it.

    Gradients of one bucket may come from several streams: those of their forward pass, in the threads of autograd.
    """

    def __init__(self) -> None:
        self._streams: list[Any] = []

    def add(self, buffer: Tensor) -> None:
        """The current stream writes to ``buffer`` from now on."""
        if buffer.is_cuda:
            stream = torch.cuda.current_stream(buffer.device)
            if stream not in self._streams:
                self._streams.append(stream)

    def join(self, buffer: Tensor) -> None:
        """The current stream reads ``buffer`` from now on: it waits for the streams that write to it."""
        if not self._streams:
            return
        current = torch.cuda.current_stream(buffer.device)
        for stream in self._streams:
            if stream != current:
                current.wait_stream(stream)
        self._streams.clear()
