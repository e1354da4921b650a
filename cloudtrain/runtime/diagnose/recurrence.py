"""Whether a failure is the one before again: the same exception, in the same line of the script."""

from __future__ import annotations

import re

from cloudtrain._system.patterns import pattern
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.text import one_line
from cloudtrain.runtime.diagnose.first_cause import is_consequence

_DETERMINISTIC = (FailureClass.USER_ERROR, FailureClass.OUT_OF_MEMORY)
_NETWORK = pattern(
    r"connect|time[d_]*out|network|socket|ssl|http|url|pipe|gaierror|endpoint|client|remote|protocol|throttl|comm"
    r"|unavailable|incomplete|interrupt|storage|platform|dist|^oserror|ioerror",
    re.IGNORECASE,
)
"""Exceptions about something outside of the script: it may be back at the next attempt."""
_RAISED = pattern(r"^(?:\w+\.)*(\w+)(?::|$)", re.MULTILINE)
"""The exceptions of a traceback: one that a library raises may have another as its cause."""
_PASSING = pattern(
    r"temporar|unavailable|unreachable|(?:could ?n.t|cannot|failed to) connect|try again|too many requests|rate limit"
    r"|worker.*(?:killed|exited unexpectedly)|stale file handle",
    re.IGNORECASE,
)
"""Messages about the same."""
_VARYING = pattern(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
"""Numbers and addresses in a message may differ between two attempts."""
LONGEST_CAUSE = 200
"""Characters of a cause in the record."""
_FRAME = pattern(r'^ *File "(.*)", line (\d+), in (.*)$', re.MULTILINE)


def happened_twice(cause: str, step: int | None) -> str:
    """Why a job with this `cause_of` its last two attempts, both after ``step``, does not restart."""
    after = "before the first step" if step is None else f"after step {step}"
    return f"the same failure happened twice {after}: {cause}"


def cause_of(failure: FailureReport, step: int | None) -> str:
    """The cause that would recur: an exception of the script and its place; empty if the next attempt may well succeed.

    Without a step, its message has to be the same too: the script may report no steps.

    >>> trace = 'File "/tmp/x/train.py", line 8, in step'
    >>> report = FailureReport(FailureClass.USER_ERROR, "'a'", exception_type="KeyError", traceback=trace)
    >>> cause_of(report, 7), cause_of(report, None)
    ('KeyError in step at train.py:8', "KeyError in step at train.py:8: 'a'")
    """
    from cloudtrain.runtime.diagnose.hangs import site_of  # loaded after a failure only
    from cloudtrain.runtime.diagnose.tracers import Frame

    exception = failure.exception_type
    if failure.failure_class not in _DETERMINISTIC or not exception or is_consequence(failure):
        return ""
    frames = [Frame(function, file, int(line)) for file, line, function in _FRAME.findall(failure.traceback)]
    raised = [exception, *_RAISED.findall(failure.traceback)]
    if not frames or any(map(_NETWORK.search, raised)) or _PASSING.search(failure.message):
        return ""
    message = one_line(_VARYING.sub("#", failure.message)) if step is None else ""
    place = f"{exception} in {site_of(frames[::-1])}"
    return (f"{place}: {message}" if message else place)[:LONGEST_CAUSE]
