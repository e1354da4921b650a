"""Process sets that come and go after ``init``."""

from __future__ import annotations

from collections.abc import Sequence

from cloudtrain.distributed.negotiation.messages import Verdict, add_set, remove_set
from cloudtrain.distributed.process_set import ProcessSet, with_id
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._handle import Handle
from cloudtrain.distributed.torch._state import Session


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Make a set known to all ranks, which all call this with the same ranks; waits for them.

    Raises:
        InvalidArgument: ranks that do not exist, or a set that is known already. Also a ValueError.
        CollectiveError: the ranks disagree.
    """
    session = _state.current()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    ranks = process_set.check_new(session.world.size, session.sets)
    process_set.attach(_agree_on(session, ranks), ranks, session.world.rank)
    session.sets.append(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forget a set on all ranks, which all call this; False for the global set or one that is not known."""
    session = _state.current()
    set_id = process_set.process_set_id
    if process_set not in session.sets or set_id is None:
        return False
    if not session.alone:
        request = remove_set(set_id)
        Handle(
            request.label,
            session.engine.submit(request, lambda _: session.close_groups(set_id)),
            lambda: None,
        ).wait()
    session.sets.remove(process_set)
    process_set.detach()
    return True


def process_set_by_id(set_id: int) -> ProcessSet:
    """Raises InvalidArgument where there is none."""
    return with_id(set_id, [_state.global_process_set, *_state.current().sets])


def _agree_on(session: Session, ranks: list[int]) -> int:
    if session.alone:
        return len(session.sets) + 1
    request = add_set(ranks)
    agreed: list[int] = []

    def open_groups(verdict: Verdict) -> None:
        agreed.extend(verdict.own)
        session.groups[agreed[0]] = session.open_groups(ranks)

    Handle(request.label, session.engine.submit(request, open_groups), lambda: None).wait()
    return agreed[0]
