"""Real Slurm clusters, and helpers of other folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parents[1]
sys.path += [str(INTEGRATION / "local"), str(INTEGRATION / "ssh")]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("slurm_fixtures")
