"""Counts what would make the host wait for a GPU: operations that read the value of a tensor."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

READS = (
    "_local_scalar_dense",  # item(), float(), tolist() of a GPU tensor, bool()
    "_unique2",
    "equal",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "unique_dim",
)


class HostReads(TorchDispatchMode):
    """In this block, ``found`` lists the operations that read a tensor on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.split("::")[1]
        if name in READS:
            self.found.append(name)
        return function(*args, **(kwargs or {}))
