"""CUDA streams of the tensors that collectives read and write. Does nothing for tensors of the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class WritingStreams:
    """The streams that write the gradients of a bucket, until another stream reads them.

    Gradients of one bucket may come from several streams: those of their forward pass, in the threads of autograd.
    """

    def __init__(self) -> None:
        self._streams: list[Any] = []

    def add(self, buffer: Tensor) -> None:
        """The current stream has written what belongs to ``buffer``, or to a tensor on its device."""
        if buffer.is_cuda:
            stream = torch.cuda.current_stream(buffer.device)
            if stream not in self._streams:
                self._streams.append(stream)

    def join(self, buffer: Tensor) -> bool:
        """The current stream waits for the others, to read what they have written. Returns whether there are others."""
        if not self._streams:
            return False
        current = torch.cuda.current_stream(buffer.device)
        others = [stream for stream in self._streams if stream != current]
        for stream in others:
            current.wait_stream(stream)
        self._streams.clear()
        return bool(others)
