"""Detects that a failure repeats the previous one: the same exception, at the same line of the script."""

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
"""Exceptions about something outside of the script, which may be available at the next attempt."""
_RAISED = pattern(r"^(?:\w+\.)*(\w+)(?::|$)", re.MULTILINE)
"""All exceptions of a traceback, because an exception that a library raises may have another as its cause."""
_PASSING = pattern(
    r"temporar|unavailable|unreachable|(?:could ?n.t|cannot|failed to) connect|try again|too many requests|rate limit"
    r"|worker.*(?:killed|exited unexpectedly)|stale file handle",
    re.IGNORECASE,
)
"""Messages about temporary failures of something outside of the script."""
_VARYING = pattern(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
"""Numbers and addresses in a message, which may differ between two attempts."""
LONGEST_CAUSE = 200
"""The most characters of a cause in the record."""
_FRAME = pattern(r'^ *File "(.*)", line (\d+), in (.*)$', re.MULTILINE)


def happened_twice(cause: str, step: int | None) -> str:
    """The reason not to restart a job whose last two attempts, both after ``step``, had this `cause_of`."""
    after = "before the first step" if step is None else f"after step {step}"
    return f"the same failure happened twice {after}: {cause}"


def cause_of(failure: FailureReport, step: int | None) -> str:
    """The exception of the script, and its place, if it would recur; empty if the next attempt may well succeed.

    If ``step`` is None, the message is part of the cause, because the script may not report steps.

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
