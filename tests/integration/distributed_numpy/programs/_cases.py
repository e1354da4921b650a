"""Helpers for the cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ml_dtypes
import numpy as np

import cloudtrain.distributed.numpy as hvd

bfloat16 = np.dtype(ml_dtypes.bfloat16)


@contextmanager
def raises(kind: type[Exception], *words: str) -> Iterator[None]:
    """Assert that the block raises ``kind`` with all ``words`` in its message."""
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
    else:
        raise AssertionError(f"did not raise {kind.__name__}")


def same(result: np.ndarray, wanted: np.ndarray) -> None:
    """Assert that type, shape and values are equal."""
    assert type(result) is np.ndarray
    assert result.dtype == wanted.dtype, f"{result.dtype} is not {wanted.dtype}"
    assert result.shape == wanted.shape, f"{result.shape} is not {wanted.shape}"
    np.testing.assert_array_equal(result.astype(np.complex128), wanted.astype(np.complex128))


def over_mpi() -> bool:
    """Whether this run uses the MPI backend."""
    from sys import argv

    return argv[1] == "mpi"


def ranks() -> range:
    return range(hvd.size())
