"""Adasum: combines gradients without overshooting where they agree.

Operator and algorithm are from Maleki et al. 2020, https://arxiv.org/abs/2006.02924 (equation 5 and algorithm 1):
orthogonal vectors are added, parallel ones averaged. The ranks form a binary tree, traversed by vector halving and
distance doubling and then back. Each element of the result is computed on one rank, so that all ranks get the same
bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument

_CHUNK = 1 << 20
"""Elements converted to double precision at a time."""


def adasum_(tensors: Sequence[Tensor], group: Any, ranks: Sequence[int]) -> None:
    """Combine each of the ``tensors`` over the ranks of ``group``, in place.

    The tree pairs neighbours in ``ranks``. If their number is not a power of two, the ranks beyond the largest power
    are first combined with the first ranks. Dot products and combinations are computed in float64. Needs memory for at
    most two copies of ``tensors``.

    Args:
        tensors: floating-point, on one device; the same shapes and types on all ranks.
        group: a process group of ``torch.distributed``.
        ranks: the global ranks of the group's members, in the order of the group.

    Raises:
        InvalidArgument: a tensor is not floating-point.
        RuntimeError: the backend failed.
    """
    for tensor in tensors:
        if not tensor.is_floating_point():
            raise InvalidArgument(
                f"Adasum needs floating-point numbers, not {tensor.dtype}", hint="Use op=Sum or op=Average."
            )
    if len(ranks) == 1 or not tensors:
        return
    parts = [tensor.detach().reshape(-1) for tensor in tensors]
    flat = parts[0] if len(parts) == 1 else torch.cat(parts)
    _Tree(flat, [part.numel() for part in parts], group, ranks).run()
    offset = 0
    for tensor in tensors:
        result = flat.narrow(0, offset, tensor.numel())
        offset += tensor.numel()
        if result.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(result.view(tensor.shape))


class _Tree:
    """One Adasum over a flat buffer that holds vectors of the given ``lengths``."""

    def __init__(self, flat: Tensor, lengths: Sequence[int], group: Any, ranks: Sequence[int]) -> None:
        self._flat = flat
        self._lengths = lengths
        self._group = group
        self._ranks = ranks
        self._own = list(ranks).index(dist.get_rank())

    def run(self) -> None:
        power = 1 << (len(self._ranks).bit_length() - 1)
        extra = len(self._ranks) - power
        if extra and self._flat.is_cuda:
            # NCCL connects a group at its first call, which all of its ranks must make, on this device. A barrier would
            # wait for the GPU, and may use Gloo if the group has it.
            dist.all_reduce(torch.zeros(1, device=self._flat.device), group=self._group)
        if self._own >= power:
            self._exchange(self._own - power, self._flat, None)
            self._exchange(self._own - power, None, self._flat)
            return
        if self._own < extra:
            theirs = torch.empty_like(self._flat)
            self._exchange(self._own + power, None, theirs)
            self._combine_(slice(0, theirs.numel()), self._flat, theirs, self._flat, members=1)
            del theirs
        self._descend(slice(0, self._flat.numel()), 1, power)
        if self._own < extra:
            self._exchange(self._own + power, self._flat, None)

    def _descend(self, held: slice, distance: int, power: int) -> None:
        """Combine ``held`` over groups of 2, 4, ... ``power`` ranks; every rank gets the whole result.

        A rank and its partner divide what they hold. Each combines one half and then sends it back to the other.
        """
        if distance == power:
            return
        partner = self._own ^ distance
        middle = (held.start + held.stop) // 2
        kept, given = slice(held.start, middle), slice(middle, held.stop)
        if self._own > partner:
            kept, given = given, kept
        mine = self._flat[kept]
        theirs = torch.empty_like(mine)
        self._exchange(partner, self._flat[given], theirs)
        first, second = (mine, theirs) if self._own < partner else (theirs, mine)
        self._combine_(kept, first, second, mine, members=2 * distance)
        del theirs, first, second
        self._descend(kept, 2 * distance, power)
        self._exchange(partner, mine, self._flat[given])

    def _combine_(self, held: slice, first: Tensor, second: Tensor, out: Tensor, members: int) -> None:
        """Write the Adasum of ``first`` and ``second``, both distributed over ``members`` ranks, to ``out``."""
        segments = list(self._segments(held))
        products = torch.zeros(len(segments), 3, dtype=torch.float64, device=out.device)
        for row, segment in zip(products, segments):
            for chunk in _chunks(first[segment], second[segment]):
                a, b = (each.double() for each in chunk)
                row += torch.stack([a @ b, a @ a, b @ b])
        distance = 1
        while distance < members:
            others = torch.empty_like(products)
            self._exchange(self._own ^ distance, products, others)
            products = products + others
            distance *= 2
        for (dot, norm_a, norm_b), segment in zip(products.tolist(), segments):
            factor_a, factor_b = _factor(dot, norm_a), _factor(dot, norm_b)
            for target, a, b in _chunks(out[segment], first[segment], second[segment]):
                target.copy_(a.double() * factor_a + b.double() * factor_b)

    def _segments(self, held: slice) -> Iterator[slice]:
        """The part of each vector that lies in ``held``, relative to its start; empty if there is none."""
        end = 0
        for length in self._lengths:
            begin, end = end, end + length
            yield slice(max(begin, held.start) - held.start, max(min(end, held.stop) - held.start, 0))

    def _exchange(self, other: int, sent: Tensor | None, received: Tensor | None) -> None:
        """Exchange tensors with one member of the group. Empty tensors are not sent."""
        peer = self._ranks[other]
        messages = []
        if sent is not None and sent.numel():
            messages.append(dist.P2POp(dist.isend, sent, peer, self._group))
        if received is not None and received.numel():
            messages.append(dist.P2POp(dist.irecv, received, peer, self._group))
        for work in dist.batch_isend_irecv(messages) if messages else ():
            work.wait()


def _chunks(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Views of equally long vectors, chunk by chunk."""
    for start in range(0, vectors[0].numel(), _CHUNK):
        yield tuple(vector[start : start + _CHUNK] for vector in vectors)


def _factor(dot: float, norm: float) -> float:
    """The factor of one of the two vectors; ``norm`` is its squared length."""
    return 1.0 - dot / (2.0 * norm) if norm > 0.0 else 1.0
