"""Regular expressions that are compiled at their first use, so that importing a module is fast.

Compiling one takes a tenth of a millisecond or more, and a process uses few of those that it imports.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import compile as pattern
else:

    class pattern:
        """Like `re.compile`, at the first use of a method. Cannot be passed to `re.search` and similar functions."""

        def __init__(self, expression, flags=0):
            self._given = expression, flags

        def __getattr__(self, name):
            import re

            found = getattr(re.compile(*self._given), name)
            setattr(self, name, found)  # the next use does not call this function
            return found


__all__ = ["pattern"]
