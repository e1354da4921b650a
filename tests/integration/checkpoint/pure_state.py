"""A training whose state is a pure function of its step, as a process to kill.

python pure_state.py URI

Saves one step after the other and prints each when it is committed.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format import tensor_files

ARRAYS = 24


def state_of(step: int) -> dict[str, Any]:
    """The state of every run at ``step``: about 0.2 MB of noise, whose shape changes with the step."""
    noise = np.random.default_rng(step)
    arrays = [noise.standard_normal((step % 3 + 1, 1000)).astype(np.float32) for _ in range(ARRAYS)]
    return {"layers": {index: (array, str(index)) for index, array in enumerate(arrays)}, "step": step}


def same(left: Any, right: Any) -> bool:
    """Whether two such states are equal, bit for bit."""
    if left["step"] != right["step"] or list(left["layers"]) != list(right["layers"]):
        return False
    pairs = [(left["layers"][index], right["layers"][index]) for index in left["layers"]]
    return all(
        (one.dtype, one.shape, one.tobytes(), name) == (other.dtype, other.shape, other.tobytes(), name_too)
        for (one, name), (other, name_too) in pairs
    )


def main() -> None:
    tensor_files.PART_SIZE = 4000  # several objects per array: many points at which to be killed
    checkpointer = Checkpointer(sys.argv[1], asynchronous=False)
    checkpoint = checkpointer.restore()
    step = checkpoint.step if checkpoint else 0
    while True:
        step += 1
        checkpointer.save(step, state_of(step))
        print(step, flush=True)


if __name__ == "__main__":
    main()
