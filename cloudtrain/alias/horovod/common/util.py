"""``horovod.common.util``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cloudtrain.distributed._api import BuildQueries

_cache = cache
_FRAMEWORKS = ("torch", "tensorflow", "mxnet")


def check_extension(*arguments: Any, **options: Any) -> None:
    """Do nothing: there is no extension to build."""


def check_installed_version(*arguments: Any, **options: Any) -> None:
    """Do nothing: there is only one version."""


@contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Set environment variables during a ``with`` block. Those with the value None are not changed."""
    given = {name: value for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework, such as ``torch``, is installed and has collectives."""
    from importlib.util import find_spec

    return ext_base_name in _FRAMEWORKS and find_spec(ext_base_name) is not None


def gloo_built(verbose: bool = False) -> bool:
    """Whether collectives run without MPI."""
    return BuildQueries().gloo_built()


def mpi_built(verbose: bool = False) -> bool:
    """Whether collectives can run over MPI."""
    return BuildQueries().mpi_built()


def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
    """Whether collectives accept GPU tensors."""
    import torch

    return torch.cuda.is_available()


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether version ``ver`` is at least ``target``, such as ``1.9.0``.

    Raises:
        packaging.version.InvalidVersion: one is not a version.
    """
    from packaging.version import Version

    return Version(ver) >= Version(target)
