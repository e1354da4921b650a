"""lightkube and its HTTP client are an extra, loaded when a cluster is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import cloudtrain.platforms.kubernetes.platform, cloudtrain.platforms.kubernetes.api.client
import cloudtrain.platforms.kubernetes.doctor.checks
assert not {"lightkube", "httpx2", "yaml"} & set(sys.modules)
sys.modules[sys.argv[1]] = None
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.kubernetes.api.client import Api
try:
    Api.connect()
except PlatformError as error:
    print(error)
"""


@pytest.mark.parametrize("missing", ["lightkube", "httpx2"])
def test_the_package_is_named_where_it_is_missing(missing: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}], "
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, missing],
        env={"KUBECONFIG": str(config), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"the platform kubernetes needs the package {missing}",
        "  Run: pip install httpx2 lightkube wsproto",
    ]
