"""A collective under way."""

from __future__ import annotations

from typing import Any, Callable, Protocol

from cloudtrain import observe


class Work(Protocol):
    """What a backend runs."""

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        ...

    def wait(self) -> Any:
        """Raises CollectiveError, which names the operation and the ranks."""
        ...


class Handle:
    """Give it to `synchronize` or `poll`; a call waits for the result too.

    Args:
        work: None where there is nothing to wait for.
        finish: makes the result of what ``work`` gave.
    """

    def __init__(self, work: Work | None, finish: Callable[[Any], Any]) -> None:
        self._work = work
        self._finish: Callable[[Any], Any] | None = finish
        self._output: Any = None

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._work is None or self._work.done()

    def wait(self) -> Any:
        """The result; a second call gives it again. Raises CollectiveError."""
        if self._finish is not None:
            observe.beat()
            given = None if self._work is None else self._work.wait()
            self._output = self._finish(given)
            self._finish = self._work = None
            observe.beat()
        return self._output

    __call__ = wait

    def then(self, change: Callable[[Any], Any]) -> Handle:
        """A handle of the same work, with ``change`` of its result as its result."""
        return Handle(self, change)


def only(handle: Handle) -> Handle:
    """``handle``, whose result is the only one of its list."""
    return handle.then(lambda results: results[0])
