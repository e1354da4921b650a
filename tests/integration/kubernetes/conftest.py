"""A real Kubernetes API server, and helpers of other folders."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kubelet_logs import KubeletLogs

    from cloudtrain.platforms.kubernetes.api.client import Api

INTEGRATION = Path(__file__).parents[1]
sys.path += [str(Path(__file__).parent), str(INTEGRATION / "slurm"), str(INTEGRATION / "sagemaker_runtime")]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("kube_fixtures")


@pytest.fixture
def kubelet_logs() -> Iterator[KubeletLogs]:
    from kubelet_logs import KubeletLogs

    with KubeletLogs() as server:
        yield server


@pytest.fixture
def log_api(kubelet_logs: KubeletLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A client of `kubelet_logs`."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    return kubelet_logs.api(tmp_path)
