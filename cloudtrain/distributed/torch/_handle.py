"""A collective under way, and the one error it ends in when the backend fails."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any, Callable

from torch import Tensor

from cloudtrain import observe
from cloudtrain.contract.failure import first_line
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.torch import _session

_numbers = itertools.count()
_SOURCE_LOCATION = re.compile(r"^\[[^]]*\.cc:\d+] ")


def label(kind: str, name: str | None) -> str:
    """What to call one operation in an error: its kind and its tensor, as Horovod names it."""
    return f"{kind} of {name or f'{kind}.noname.{next(_numbers)}'}"


class Handle:
    """Give it to `synchronize` or `poll`.

    Args:
        label: the operation's name in errors.
        work: what the backend runs; None where nothing is to be waited for.
        finish: gives the result once the work is done.
    """

    def __init__(self, label: str, work: Any, finish: Callable[[], Tensor]) -> None:
        self._label = label
        self._work = work
        self._finish: Callable[[], Tensor] | None = finish
        self._output: Tensor | None = None

    def done(self) -> bool:
        return self._work is None or bool(self._work.is_completed())

    def wait(self) -> Tensor:
        """The result; a second call gives it again. Raises CollectiveError."""
        if self._finish is not None:
            with reported(self._label):
                if self._work is not None:
                    self._work.wait()
            self._output = self._finish()
            self._finish = self._work = None
        assert self._output is not None
        return self._output


@contextlib.contextmanager
def reported(label: str) -> Iterator[None]:
    """A failure of the backend becomes a CollectiveError that names the operation and this rank."""
    observe.beat()
    try:
        yield
    except CollectiveError:
        raise
    except RuntimeError as error:
        reason = _SOURCE_LOCATION.sub("", first_line(str(error)))
        raise CollectiveError(
            f"{label} failed on rank {_session.rank()}: {reason}",
            hint="Another rank died, hangs, or called another collective; look at its log.",
        ) from error
    observe.beat()
