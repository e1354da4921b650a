"""Training as a function that is called again after a failure."""

from __future__ import annotations

import functools
import itertools
import logging
from typing import Any, Callable, TypeVar

from cloudtrain.distributed.errors import CollectiveError, HostsUpdatedInterrupt
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._init import rejoin
from cloudtrain.distributed.torch.elastic._state import CommitFile, ObjectState, State, commit_file
from cloudtrain.distributed.torch.functions import allgather_object

T = TypeVar("T")

MEET_SECONDS = 10.0
"""How long ranks look for each other again after a failure. All have seen it: who lives comes soon. For the others
the agent has to start all ranks anew, which it does when this rank gives up."""

MOST_FAILURES = 3
"""Failures in a row, without a commit in between, after which the cause is taken to last."""

_runs = itertools.count()
_log = logging.getLogger(__name__)


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Decorate a training function, whose first argument is a `State`, so that it survives lost ranks.

    Before the function begins, its state is that of the newest commit that any host has, and equal on all ranks.
    When a collective fails and all ranks live, they meet again and the function is called again with the state of
    the last commit. Where a rank has died, the error passes on, so that torchrun's agent starts all ranks anew.

    Raises:
        CollectiveError: the ranks do not meet again, or fail again and again without a commit in between.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> T:
        reset = _resume(state, commit_file(next(_runs)))
        must_sync = True
        failures, commits = 0, state._commits
        while True:
            try:
                # Not every host has a commit, and one rank of each knows; but the callbacks are for all.
                if any(allgather_object(reset, "reset")):
                    state.on_reset()
                if must_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except CollectiveError as error:
                failures = failures + 1 if state._commits == commits else 1
                commits = state._commits
                if failures >= MOST_FAILURES:
                    raise
                _log.warning("going back to commit %d: %s", commits, error)
                state.restore()
                must_sync = True
            except HostsUpdatedInterrupt as interrupt:
                must_sync = not interrupt.skip_sync
            rejoin(MEET_SECONDS)
            reset = True

    return wrapper


def _resume(state: State, file: CommitFile | None) -> bool:
    """Go back to the last commit of this host, if it has any, and keep those to come.

    One rank of each host does so, so that losing a host loses no commit.
    """
    if file is None or _state.local_rank() != 0 or not isinstance(state, ObjectState):
        return False
    return state.resume(file)
