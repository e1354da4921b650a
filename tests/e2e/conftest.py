"""The way to the parts that play SageMaker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parents[1] / "integration"
sys.path += [
    str(INTEGRATION / name)
    for name in ("hosts", "kubernetes", "local", "sagemaker", "sagemaker_runtime", "slurm", "ssh")
]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("slurm_fixtures")
    config.pluginmanager.import_plugin("kube_fixtures")
