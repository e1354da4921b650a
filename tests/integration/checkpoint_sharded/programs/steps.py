"""A training whose state is sharded over the ranks and is a pure function of its step.

python steps.py forever|preempted|failing|apart|absent|leaving|restless|restore URI [EVERY|END]
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

from pure_shards import ARRAYS, whole_state

from cloudtrain import environment
from cloudtrain.checkpoint import Checkpointer, Shard
from cloudtrain.checkpoint.format import tensor_files
from cloudtrain.checkpoint.sharded import group
from cloudtrain.errors import CheckpointError


def state_of(step: int) -> dict[str, Any]:
    """This rank's part of the state: some of the rows."""
    state = whole_state(step)
    rank, size = dist.get_rank(), dist.get_world_size()
    begin, end = len(state["0"]) * rank // size, len(state["0"]) * (rank + 1) // size
    parts = {str(n): Shard(state[str(n)][begin:end], state[str(n)].shape, (begin, 0)) for n in range(ARRAYS)}
    return {**state, **parts}


def forever(uri: str) -> None:
    """Save one step after the other, printing each when it is durable."""
    checkpointer = Checkpointer(uri, sharded=True, asynchronous=False)
    checkpoint = checkpointer.restore()
    step = checkpoint.step if checkpoint else 0
    while True:
        step += 1
        checkpointer.save(step, state_of(step))
        print(step, flush=True)
        meet()


def preempted(uri: str, every: str) -> None:
    """Run until one rank gets the notice to stop."""
    checkpointer = Checkpointer(uri, sharded=True, keep=None, every=int(every) if every.isdigit() else every)
    for step in range(1, 2000):
        meet()
        checkpointer.maybe_save(step, lambda step=step: state_of(step))
        print(step, flush=True)
        environment.exit_if_preempted()
        time.sleep(0.05)


def failing(uri: str) -> None:
    """Rank 1 cannot write step 2 and has an unsupported state at step 3; later saves succeed."""
    checkpointer = Checkpointer(uri, sharded=True)
    save_or_print(checkpointer, 1, state_of(1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    second = dist.get_rank() == 1
    if second:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    save_or_print(checkpointer, 2, state_of(2))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    save_or_print(checkpointer, 3, {**state_of(3), "no state": object() if second else 0})
    if second:
        save_or_print(
            checkpointer, 4, state_of(4)
        )  # which raises the failure of step 3, as on the other rank
    save_or_print(checkpointer, 4, state_of(4))


def apart(uri: str) -> None:
    """Rank 1 is one step ahead, once."""
    checkpointer = Checkpointer(uri, sharded=True)
    for step in (1, 2, 4):
        own = step + (step == 2 and dist.get_rank() == 1)
        save_or_print(checkpointer, own, state_of(own))


def absent(uri: str) -> None:
    """Rank 1 does not save the second step, and stays until the others have given it up."""
    group.TIMEOUT = 5.0
    checkpointer = Checkpointer(uri, sharded=True)
    save_or_print(checkpointer, 1, state_of(1))
    given_up = [Path(f"{uri}-given-up-{rank}") for rank in range(dist.get_world_size())]
    if dist.get_rank() != 1:
        save_or_print(checkpointer, 2, state_of(2))
        given_up[dist.get_rank()].touch()
    while dist.get_rank() == 1 and not all(path.exists() for path in (given_up[0], given_up[2])):
        time.sleep(0.05)


def leaving(uri: str) -> None:
    """Rank 1 leaves the training after step 2 and does something else.

    It is new in this world, as after an elastic training has replaced a rank: the others come from another one.
    """
    rank, folder = dist.get_rank(), Path(uri).parent
    meet()  # until then, another rank may still connect to this one
    dist.destroy_process_group()
    if rank != 1:
        dist.init_process_group("gloo", f"file://{folder}/before", rank=rank // 2, world_size=2)
        group.RankGroup()
        meet()
        dist.destroy_process_group()
    dist.init_process_group("gloo", f"file://{folder}/now", rank=rank, world_size=3)
    checkpointer = Checkpointer(uri, sharded=True, every=2)
    began = time.monotonic()
    try:
        for step in range(1, 3 if dist.get_rank() == 1 else 100):
            checkpointer.maybe_save(step, state_of(step))
        checkpointer.close()
    except CheckpointError as error:
        assert time.monotonic() - began < 100
        print(f"raised: {error.message}", flush=True)
    if dist.get_rank() == 1:
        time.sleep(4)


def restless(uri: str, end: str) -> None:
    """Save at every step until the file ``end`` exists; print each step once its save has begun."""
    step = 0
    with Checkpointer(uri, sharded=True) as checkpointer:
        is_over = False
        while not is_over:
            step += 1
            checkpointer.save(step, state_of(step))
            print(step, flush=True)
            ends = torch.tensor([int(Path(end).exists())])
            dist.all_reduce(ends)
            is_over = bool(ends)
            time.sleep(0.2)


def restore(uri: str) -> None:
    """Restore into existing shards."""
    state = state_of(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checkpoint = Checkpointer(uri, sharded=True).restore(into=state)
    assert checkpoint is not None
    expected = state_of(checkpoint.step)
    for name in map(str, range(ARRAYS)):
        assert checkpoint.state[name] is state[name]
        assert state[name].array.tobytes() == expected[name].array.tobytes()
    print("restored", checkpoint.step, "warnings", [str(warning.message) for warning in caught], flush=True)


def save_or_print(checkpointer: Checkpointer, step: int, state: Any) -> None:
    try:
        checkpointer.save(step, state)
        checkpointer.wait()
    except CheckpointError as error:
        print(f"at step {step}: {error.message}", flush=True)


def meet() -> None:
    """Synchronize the ranks, as a training does at every step."""
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    tensor_files.PART_SIZE = 4000  # many objects: many points at which to be killed
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](*sys.argv[2:])
    dist.destroy_process_group()
