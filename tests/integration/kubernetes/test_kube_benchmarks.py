"""The benchmarks on Kubernetes run to their end, at their smallest size."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_runs import run_smallest
from kube_server import KubeServer


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_benchmarks_on_kubernetes_run(kube_server: KubeServer, tmp_path: Path) -> None:
    printed = {figure["what"] for figure in run_smallest("on_kubernetes.py", tmp_path)}
    assert {"submit a script to Kubernetes: CPU", "watch 5 pods for 5 s: requests"} <= printed
