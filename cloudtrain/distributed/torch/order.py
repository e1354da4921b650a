"""A promise that saves ranks from asking."""

from __future__ import annotations

import contextvars

_promised = contextvars.ContextVar("same_order", default=False)


class same_order:
    """In this block all ranks call the same allreduces and broadcasts, of the same tensors in the same order.

    They run without asking the other ranks first, as those of `DistributedOptimizer` do: at the speed of bare
    ``torch.distributed``, and with its consequences where the promise is broken: wrong sums, an abort, or an
    error after the timeout. Other collectives ask in this block too. Beyond Horovod.

        with hvd.same_order():
            for tensor in tensors:
                hvd.allreduce_(tensor)
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _promised.set(True)

    def __exit__(self, *_: object) -> None:
        _promised.reset(self._token)


def promised() -> bool:
    """Whether this thread is in a block of `same_order`."""
    return _promised.get()
