"""The gradients of one optimizer, summed over ranks during the backward pass."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from cloudtrain.distributed.errors import GradientOrderError
from cloudtrain.distributed.torch._buckets import BUCKET_BYTES, FIRST_BYTES, Bucket, Slot, make_buckets
from cloudtrain.distributed.torch.compression import Compressor


class GradientReducer:
    """Hooks parameters, fills buckets, launches them in a fixed order, waits for them.

    Args:
        names: of parameters, for errors; their order is taken as the order of the forward pass.
        compression: of what travels.
        passes: backward passes that are summed up before a gradient travels.
        prescale: multiplied to gradients before they are summed over ranks.
        postscale: multiplied after it.
    """

    def __init__(
        self,
        names: Mapping[Tensor, str],
        compression: type[Compressor],
        passes: int,
        prescale: float,
        postscale: float,
    ) -> None:
        self.pending = False
        """Whether a gradient came since the last `synchronize`."""
        self._names = dict(names)
        self._compression = compression
        self._passes = passes
        self._prescale = prescale
        self._postscale = postscale
        self._buckets: list[Bucket] = []
        self._launched = 0
        self._known: set[Tensor] = set()

    def track(self, parameters: Iterable[Tensor]) -> None:
        """Take in those ``parameters`` that are new, or were frozen before."""
        new = [p for p in parameters if p.requires_grad and p not in self._known]
        if not new:
            return
        for parameter in new:
            self._names.setdefault(parameter, f"allreduce.noname.{len(self._names)}")
        self._known.update(new)
        place = {parameter: number for number, parameter in enumerate(self._names)}
        new.sort(key=place.__getitem__, reverse=True)
        first_bytes = BUCKET_BYTES if self._buckets else FIRST_BYTES
        buckets = make_buckets([(self._names[p], p) for p in new], self._passes, first_bytes=first_bytes)
        self._buckets += buckets
        for slot in (slot for bucket in buckets for slot in bucket.slots):
            # A parameter may outlive its optimizer, and must not keep it.
            hook = functools.partial(_arrived, weakref.ref(self), slot)
            register: Any = slot.parameter.register_post_accumulate_grad_hook
            weakref.finalize(self, register(hook).remove)

    def synchronize(self) -> None:
        """Launch what is not under way, gradients that did not come being zero, and wait for all."""
        for bucket in self._buckets[self._launched :]:
            for slot in bucket.slots:
                if not slot.filled:
                    bucket.fill(slot, self._prescale)
            bucket.launch(self._compression, self._postscale)
        for bucket in self._buckets:
            if bucket.handle is not None:
                bucket.handle.wait()
        self.reset()

    def reset(self, passes: int | None = None) -> None:
        """Forget the gradients that came."""
        self._passes = self._passes if passes is None else passes
        self._launched = 0
        self.pending = False
        for bucket in self._buckets:
            bucket.reset(self._passes)

    def arrived(self, slot: Slot) -> None:
        """A backward pass added to the gradient of ``slot``."""
        if slot.passes_left <= 0:
            raise GradientOrderError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). "
                "Increase backward_passes_per_step to accumulate gradients locally."
            )
        self.pending = True
        slot.passes_left -= 1
        if slot.passes_left > 0:
            slot.bucket.put(slot, 1.0)
            return
        slot.bucket.fill(slot, self._prescale)
        while self._launched < len(self._buckets) and self._buckets[self._launched].missing == 0:
            self._buckets[self._launched].launch(self._compression, self._postscale)
            self._launched += 1


def _arrived(reducer: weakref.ref[GradientReducer], slot: Slot, _: Any) -> None:
    alive = reducer()
    if alive is not None:
        alive.arrived(slot)
