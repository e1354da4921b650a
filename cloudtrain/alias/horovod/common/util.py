"""``horovod.common.util``."""

from __future__ import annotations

from typing import Any


def check_extension(*arguments: Any, **options: Any) -> None:
    """Do nothing: there is no extension to build."""


def check_installed_version(*arguments: Any, **options: Any) -> None:
    """Do nothing: there is only one version."""


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
