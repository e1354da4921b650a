"""``run``: calls the training function again after a failure."""

from __future__ import annotations

import functools
import itertools
import logging
from typing import Any, Callable, TypeVar

from cloudtrain.distributed.errors import CollectiveError, HostsUpdatedInterrupt
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._failures import give_up
from cloudtrain.distributed.torch._init import reinit
from cloudtrain.distributed.torch.elastic._state import CommitFile, ObjectState, State, commit_file
from cloudtrain.distributed.torch.objects import allgather_object

T = TypeVar("T")

REINIT_SECONDS = 10.0
"""How long ranks wait for one another after a failure. All of them have noticed it, so living ranks appear soon. If one
does not, this rank gives up, and the agent restarts all ranks."""

MAX_FAILURES = 3
"""After this number of failures in a row without a commit in between, the cause is considered permanent."""

_runs = itertools.count()
_log = logging.getLogger(__name__)


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Decorate a training function, whose first argument is a `State`, so that it survives lost ranks.

    Before the function starts, its state is that of the newest commit on any host, and the same on all ranks. When a
    collective fails and all ranks are alive, they initialize again, and the function is called again with the state of
    the last commit. When a rank has died, the error propagates, so that torchrun's agent restarts all ranks.

    Raises:
        CollectiveError: the ranks could not initialize again, or failed repeatedly without a commit in between.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> T:
        reset = _resume(state, commit_file(next(_runs)))
        must_sync = True
        failures, commits = 0, state._commits
        while True:
            try:
                # Only one rank of a host knows whether the host has a commit; but the callbacks run on all ranks.
                if any(allgather_object(reset, "reset")):
                    state.on_reset()
                if must_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except CollectiveError as error:
                failures = failures + 1 if state._commits == commits else 1
                commits = state._commits
                if failures >= MAX_FAILURES:
                    raise
                _log.warning("restoring commit %d: %s", commits, error)
                give_up()  # before the state is copied to the GPU, which would wait for what was launched
                state.restore()
                must_sync = True
            except HostsUpdatedInterrupt as interrupt:
                must_sync = not interrupt.skip_sync
            reinit(REINIT_SECONDS)
            reset = True

    return wrapper


def _resume(state: State, file: CommitFile | None) -> bool:
    """Restore the last commit of this host, if there is one, and write further commits to ``file``.

    One rank of each host does so, so that losing a host loses no commit.
    """
    if file is None or _state.local_rank() != 0 or not isinstance(state, ObjectState):
        return False
    return state.resume(file)
