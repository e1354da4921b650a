"""What the manifest tells of the run: when, where and by what it was saved, and its metrics."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from typing import Any

from cloudtrain import environment
from cloudtrain._version import __version__
from cloudtrain.checkpoint import _framework, _tree
from cloudtrain.errors import CheckpointError


def about_run(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the manifest. Raises CheckpointError for metrics that are no numbers."""
    if not isinstance(metrics, Mapping):
        raise CheckpointError(f"metrics={metrics!r} is no mapping", hint='Give such as {"loss": 0.5}.')
    numbers = {name: _number(name, value) for name, value in metrics.items()}
    return {
        "time": time.time(),
        "metrics": _tree.encode(numbers, "metrics")[0]["tree"],
        "world_size": environment.world_size(),
        "job": environment.job_name(),
        "git_commit": os.environ.get("CLOUDTRAIN_GIT_COMMIT"),
        "versions": {
            "cloudtrain": __version__,
            "python": platform.python_version(),
            **_framework.versions(),
        },
    }


def _number(name: str, value: Any) -> int | float:
    try:
        return value if type(value) is int else float(value)
    except (TypeError, ValueError, RuntimeError):
        raise CheckpointError(
            f"metrics[{name!r}] is no number: {value!r}",
            hint="Metrics are numbers; other things go into the state.",
        ) from None
