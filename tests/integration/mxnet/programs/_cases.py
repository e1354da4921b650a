"""Helpers for the cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import cloudtrain.distributed.mxnet as hvd


@contextmanager
def raises(kind: type[Exception], *words: str) -> Iterator[None]:
    """Assert that the block raises ``kind`` with all ``words`` in its message and hint."""
    try:
        yield
    except kind as error:
        text = f"{error} {getattr(error, 'hint', '')}"
        for word in words:
            assert word in text, f"{word!r} is not in: {text}"
    else:
        raise AssertionError(f"did not raise {kind.__name__}")


def same(result, wanted: np.ndarray) -> None:
    """Assert that an NDArray has the type, shape and values of ``wanted``."""
    found = result.asnumpy()
    assert found.dtype == wanted.dtype, f"{found.dtype} is not {wanted.dtype}"
    assert found.shape == wanted.shape, f"{found.shape} is not {wanted.shape}"
    np.testing.assert_array_equal(found, wanted)


def ranks() -> range:
    return range(hvd.size())
