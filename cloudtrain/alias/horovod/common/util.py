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
