"""Validation by msgspec."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def convert(value: Any, kind: type[T], where: str = "") -> T:
    """Convert ``value``, which consists of dicts, lists and scalars, to a ``kind``.

    Args:
        where: the path of ``value`` itself, for messages.

    Raises:
        InvalidJob: ``value`` is not valid. The message starts with the path: ``inputs.train.s3_data: ...``.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        from cloudtrain.spec._explain import explain  # slow to import

        raise explain(str(error), value, kind, where) from None
