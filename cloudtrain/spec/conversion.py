"""Validation by msgspec."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_ALONE = threading.RLock()
"""msgspec looks at a type when it is first converted to. Two threads that do so at the same time crash the process."""


def convert(value: Any, kind: type[T], where: str = "") -> T:
    """Convert ``value``, which consists of dicts, lists and scalars, to a ``kind``.

    Args:
        where: the path of ``value`` itself, for messages.

    Raises:
        InvalidJob: ``value`` is not valid. The message starts with the path: ``inputs.train.s3_data: ...``.
    """
    try:
        with _ALONE:
            return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        from cloudtrain.spec.explain import explain  # slow to import

        raise explain(str(error), value, kind, where) from None
