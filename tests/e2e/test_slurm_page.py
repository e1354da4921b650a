"""The commands of the page about Slurm run on a real cluster, some of them through its login node."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from documents import REPOSITORY, Reader
from login_node import ALIAS, LoginNode
from slurm_cluster import SlurmCluster

from cloudtrain.platforms.batch.control import log_out

PAGES = ["docs/guides/slurm.md", "docs/guides/pbs.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_runs(
    page: str, slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as name:
        home = Path(name, "home")
        home.mkdir()
        node = LoginNode(
            Path(name, "node"), noise=f"export HOME={home}", environ={"SLURM_CONF": str(slurm.conf)}
        )
        (tmp_path / "config.yaml").touch()
        monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(tmp_path / "config.yaml"))
        monkeypatch.setenv("PATH", f"{node.folder}/bin:{os.environ['PATH']}")
        try:
            assert Reader(tmp_path).follow(REPOSITORY / page) > 0
        finally:
            log_out(ALIAS)
            node.stop()
