"""``horovod.common.util``."""

from __future__ import annotations

from typing import Any


def check_extension(*arguments: Any, **options: Any) -> None:
    """Nothing to check: there is no extension to build."""


def check_installed_version(*arguments: Any, **options: Any) -> None:
    """Nothing to check: there is one version."""


def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
    """Whether tensors on a GPU can be given to collectives."""
    import torch

    return torch.cuda.is_available()
