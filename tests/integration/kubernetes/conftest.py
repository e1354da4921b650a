"""A real Kubernetes API server, and helpers of other folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parents[1]
sys.path += [str(Path(__file__).parent), str(INTEGRATION / "slurm"), str(INTEGRATION / "sagemaker_runtime")]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("kube_fixtures")
