"""Makes the simulated platforms of other folders importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parents[1]
sys.path += [
    str(INTEGRATION / name)
    for name in ("container", "hosts", "kubernetes", "sagemaker", "sagemaker_runtime", "slurm")
]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("engine_fixtures")
    config.pluginmanager.import_plugin("kube_fixtures")
    config.pluginmanager.import_plugin("slurm_fixtures")
