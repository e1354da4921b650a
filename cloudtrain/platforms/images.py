"""Deprecated: the package is `cloudtrain.images`. This module will be removed in the next version."""

from __future__ import annotations

import warnings
from typing import Any

from cloudtrain import images


def __getattr__(name: str) -> Any:
    value = getattr(images, name)
    if not name.startswith("__"):
        warnings.warn(
            "cloudtrain.platforms.images is now cloudtrain.images", DeprecationWarning, stacklevel=2
        )
    return value
