"""Rank 1 sends objects with the key of another job. Prints the error of each call as JSON.

The argument is what an executed pickle would create.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import cloudtrain.distributed.numpy as arrays
import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed import CollectiveError
from cloudtrain.distributed._objects import Objects
from cloudtrain.distributed.torch._state import current


class Evil:
    """Unpickled, it creates a file."""

    def __init__(self, path: str, rest: bytes = b"") -> None:
        self.path, self.rest = path, rest

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,), self.rest


def main(target: str) -> None:
    hvd.init(start_timeout=240)
    if hvd.rank() == 1:
        current().client.objects = Objects()
    arrays.init(backend="gloo")
    large = bytes(1 << 20)
    calls: dict[str, Callable[[], Any]] = {
        "broadcast_object": lambda: hvd.broadcast_object(Evil(target), 1),
        "large broadcast_object": lambda: hvd.broadcast_object(Evil(target, large), 1),
        "allgather_object": lambda: hvd.allgather_object(Evil(target), name="all"),
        "broadcast_object of arrays": lambda: arrays.broadcast_object(Evil(target), 1),
        "allgather_object of arrays": lambda: arrays.allgather_object(Evil(target)),
    }
    errors = {}
    for name, call in calls.items():
        try:
            call()
        except CollectiveError as error:
            errors[name] = str(error)
    print(json.dumps(errors))


if __name__ == "__main__":
    main(sys.argv[1])
