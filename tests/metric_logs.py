"""``cloudtrain.log`` into a file of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cloudtrain.observe import metric_log


def log_to(
    path: Path, warn: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> metric_log.MetricLog:
    """The log of this process, until the test has ended."""
    found = metric_log.MetricLog(str(path), warn)
    monkeypatch.setattr(metric_log, "_log", found)
    return found
