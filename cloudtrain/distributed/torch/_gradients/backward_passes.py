"""Finds the end of a backward pass, where gradients are averaged before anything else can read them.

As in DistributedDataParallel, the end is a final callback of autograd's engine. Three cases need care:

- Reentrant checkpointing runs a backward pass inside another one. The end of the inner pass does not count: the nodes
  that run next in the outer pass register the end of that pass.
- Several threads may run backward passes of one model. Only the last end counts.
- A backward pass that fails has no end. The engine then drops the callback, and with it the `BackwardPass`.

If several optimizers share the ranks, which of them get gradients in a pass may depend on the data. The ranks therefore
agree on them.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

import torch

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Max
from cloudtrain.distributed.torch.collectives import allreduce_

current_task: Any = torch._C._current_graph_task_id
"""The number of the backward pass that the engine runs in this thread; -1 outside of one."""


MOST_REDUCERS = 256
"""The most reducers among the same ranks."""


class Reducer(Protocol):
    """Reduces the gradients of one optimizer."""

    number: int
    """Below `MOST_REDUCERS`; the same on all ranks."""
    shares: bool
    """Whether there are others among the same ranks."""

    @property
    def process_set(self) -> ProcessSet: ...

    def others(self) -> Sequence[Reducer]:
        """Those among the same ranks."""

    def backward_ended(self) -> bool:
        """Count a backward pass; return whether gradients have to be reduced now."""

    def begin(self) -> None:
        """Begin a step if none has begun, because another rank has gradients."""

    def launch(self) -> None: ...

    def finish(self) -> None: ...


class BackwardPass:
    """One run of the engine, held by the engine only. Calling it ends the pass."""

    def __init__(self, task: int) -> None:
        self._task = task
        self._reducers: weakref.WeakSet[Reducer] = weakref.WeakSet()
        _running[task] = self
        torch.autograd.Variable._execution_engine.queue_callback(self)

    @staticmethod
    def reaches(reducer: Reducer) -> None:
        """Record that the pass in this thread computes gradients of ``reducer``."""
        task = current_task()
        if task >= 0:
            with _reaching:
                running = _running.get(task) or BackwardPass(task)
                running._reducers.add(reducer)

    def __call__(self) -> None:
        with _reaching:  # of the passes that end at the same time in several threads, the last one reduces
            _running.pop(self._task, None)
            reducers = list(self._reducers)
            others = set(itertools.chain.from_iterable(each._reducers for each in _running.values()))
        outer: Any = torch._C._current_autograd_node()
        if outer is not None:
            _reach_after(outer, reducers)
            return
        ended = [each for each in reducers if each not in others]
        reduce_now([each for each in ended if each.backward_ended()], ended)


_running: weakref.WeakValueDictionary[int, BackwardPass] = weakref.WeakValueDictionary()
_reaching = threading.Lock()


def _reach_after(outer: Any, reducers: list[Reducer]) -> None:
    """Record that the pass that runs ``outer`` computes gradients of ``reducers``, when its next node runs."""
    handles: list[Any] = []

    def reached(_: object) -> None:
        for handle in handles:
            handle.remove()
        for reducer in reducers:
            BackwardPass.reaches(reducer)

    handles += [node.register_prehook(reached) for node, _ in outer.next_functions if node is not None]


def reduce_now(due: Collection[Reducer], ended: Iterable[Reducer]) -> None:
    """Reduce the gradients of the reducers that are ``due``, on this rank or another.

    Args:
        ended: the reducers with gradients in the backward pass that has ended.
    """
    chosen = [each for each in due if not each.shares]
    sharing = {tuple(each.process_set.members()): each for each in ended if each.shares}
    for members in sorted(sharing):
        chosen += _agreed(sharing[members], due)
    # A rank in several process sets must not wait in one while the others wait for it in another.
    chosen.sort(key=lambda each: (each.process_set.members(), each.number))
    for each in chosen:
        each.launch()
    for each in chosen:
        each.finish()


def in_several_threads() -> InvalidArgument:
    return InvalidArgument(
        "two DistributedOptimizers train at the same time in different threads: the ranks would mix their gradients",
        hint="Train the models in one thread, or in separate processes.",
    )


def _agreed(one: Reducer, due: Collection[Reducer]) -> list[Reducer]:
    """The reducers among the ranks of ``one`` that are due on any of these ranks, in the same order on all of them."""
    everyone = sorted([one, *one.others()], key=lambda each: each.number)
    flags = torch.zeros(MOST_REDUCERS, dtype=torch.uint8)
    for each in everyone:
        flags[each.number] = each in due
    try:
        allreduce_(flags, name="DistributedOptimizer.due", op=Max, process_set=one.process_set)
    except InvalidArgument as error:  # the name is in use
        raise in_several_threads() from error
    chosen = [each for each in everyone if flags[each.number]]
    for each in chosen:
        each.begin()
    return chosen
