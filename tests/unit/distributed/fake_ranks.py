"""Rank 0 of eight, without the others: they request what this rank requests, and its collectives do nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed._objects import purpose_of
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.negotiation.matcher import Matcher
from cloudtrain.distributed.negotiation.messages import GLOBAL, CollectiveRequest
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._ops import combine
from cloudtrain.distributed.world import World

RANKS = 8


class _Others:
    """Negotiates with ranks that request what this one requests."""

    def __init__(self, client: NegotiationClient) -> None:
        self._client, self._matcher = client, Matcher(RANKS, combine)

    def announce(self, request: CollectiveRequest) -> None:
        for rank in range(RANKS):
            for to, response in self._matcher.announce(rank, self._of(rank, request), 0.0):
                if to == 0:
                    self._client.deliver(response)

    def _of(self, rank: int, request: CollectiveRequest) -> CollectiveRequest:
        """An object is authenticated as that of its rank."""
        if request.kind != "allgather" or request.payload is None:
            return request
        name, objects = request.key.partition(":")[2], self._client.objects
        own = objects.unpack(request.payload, purpose_of("allgather_object", name, 0))
        payload = bytes(objects.pack(own, purpose_of("allgather_object", name, rank)))
        return replace(request, payload=payload)

    def close(self) -> None:
        """Nothing is open."""


@contextlib.contextmanager
def fake_ranks(device: torch.device) -> Iterator[None]:
    """As `cloudtrain.distributed.torch.init` leaves this process."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    client = NegotiationClient(lambda _: None, 30.0)
    client.channel = _Others(client)  # type: ignore[assignment]
    context = _state.Context(World(0, RANKS, cross_size=RANKS), False, client, 30.0, device)
    context.groups[GLOBAL] = _state.Groups(dist.group.WORLD, dist.group.WORLD)
    hvd.global_process_set.attach(GLOBAL, list(range(RANKS)), 0)
    before = _state.set_current(context)
    yield
    _state.set_current(before)
    hvd.global_process_set.detach()
    context.close_threads()
    dist.destroy_process_group()
