"""Sparse tensors, summed up or averaged over ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, Sum
from cloudtrain.distributed.torch._exchanges import gather_tensors
from cloudtrain.distributed.torch._handle import Handle
from cloudtrain.distributed.torch._state import global_process_set


def sparse_allreduce_async(
    tensor: Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to reduce a sparse COO tensor over the ranks: their indices and values are gathered, and added up.

    Args:
        tensor: of the same shape and type on all ranks, each with as many values as it has.
        op: Average or Sum.

    Raises:
        InvalidArgument: a tensor that is not sparse, or another ``op``.
    """
    if not tensor.is_sparse:
        raise InvalidArgument("sparse_allreduce_async needs a sparse COO tensor", hint="Use allreduce.")
    if op not in (Average, Sum):
        raise InvalidArgument(f"op={op!r} is not supported for sparse tensors", hint="Average or Sum.")
    size = process_set.size()
    compact = tensor.detach().coalesce()
    handle, _ = gather_tensors([compact.indices().t(), compact.values()], name, process_set)

    def add_up(gathered: list[Tensor]) -> Tensor:
        indices, values = gathered
        if op == Average:
            values = values / size
        return torch.sparse_coo_tensor(indices.t(), values, tensor.shape, check_invariants=False).coalesce()

    return handle.then(add_up)
