"""Makes the modules of the kills and of the weather importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
INTEGRATION = TESTS / "integration"
sys.path += [
    str(INTEGRATION / name)
    for name in ("checkpoint_faults", "container", "hosts", "local", "slurm", "weather")
]
sys.path.append(str(TESTS / "e2e"))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("slurm_fixtures")
