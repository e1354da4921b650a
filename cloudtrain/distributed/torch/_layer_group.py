"""Opens the process group of exchanges inside layers, and the shared memory of process groups."""

from __future__ import annotations

from typing import Any

from cloudtrain.distributed.torch._rendezvous import shared_store
from cloudtrain.distributed.torch._shared_memory import open_shared_memory
from cloudtrain.distributed.torch._state import Context


def open_layer_group(context: Context) -> None:
    """All ranks of the world call it, in the same order as what else opens groups or shared memory."""
    group = context.open_group(list(range(context.world.size)))
    if not context.waits_lazily:  # the tensors are not on the CPU
        share_memory(context, group, context.timeout)
    context.layers.group = group


def share_memory(context: Context, group: Any, start_timeout: float) -> None:
    """Let ``group``, of all ranks, reduce CPU tensors in shared memory if the ranks are on one machine."""
    world = context.world
    if world.on_one_machine:
        store = shared_store(world, start_timeout)
        memory = open_shared_memory(store, world.rank, world.size, context.timeout)
        if memory is not None:
            context.memory[group] = memory
