"""Reads an object again if it arrives altered, which may have happened on the way."""

from __future__ import annotations

from typing import Callable, TypeVar

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.failed_saves import warn
from cloudtrain.errors import NotFound
from cloudtrain.storage.base import AlteredBody, DamagedBody
from cloudtrain.storage.retry_policy import ATTEMPTS

Result = TypeVar("Result")


def read_again(read: Callable[[], Result], uri: str) -> Result:
    """The result of ``read``, which is repeated while the object is damaged, but not if it is missing.

    Raises Damaged if it always is.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return read()
        except (Damaged, AlteredBody) as error:
            if isinstance(error.__cause__, NotFound):
                raise
            if attempt == ATTEMPTS:
                raise Damaged(error.message) from error
            warn(f"{uri} is damaged and is read again: {error.message}")
        except DamagedBody as error:  # the store has tried for as long as it makes sense
            raise Damaged(error.message) from error
    raise AssertionError
