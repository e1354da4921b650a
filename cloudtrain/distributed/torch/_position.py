"""The collectives of cloudtrain that this process is in, for the report of a hang."""

from __future__ import annotations

from cloudtrain.distributed.torch import _state
from cloudtrain.observe.inquiry import Answer


def answer() -> Answer:
    """The collectives that this rank has requested and launched, as lines."""
    context = _state.current_or_none()
    if context is None or context.alone:
        return Answer()
    position = context.client.position()
    lines = []
    for each, where in ((position, ""), (position["layers"], " inside layers")):
        if each["launched"]:
            lines.append(
                f"{each['launched']} collectives launched in the same order{where}, "
                f"{len(each['in flight'])} in flight; the last: {each['at']}"
            )
    lines += [f"not requested by all ranks: {label}" for label in context.client.waiting()]
    return Answer("\n".join(lines))
