"""The commands of the page about Slurm run on a real cluster, some of them through its login node."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from documents import REPOSITORY, Reader
from login_node import ALIAS, LoginNode
from pages import PASSED, lock_line, parametrize_pages
from slurm_cluster import SlurmCluster

from cloudtrain.platforms.batch.control import log_out

PAGES = ["docs/guides/slurm.md", "docs/guides/pbs.md"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_pages(metafunc, "running_page", PAGES)


def test_every_command_runs(
    running_page: str,
    slurm: SlurmCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
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
            assert Reader(tmp_path).follow(REPOSITORY / running_page) > 0
        finally:
            log_out(ALIAS)
            node.stop()
    record_property(PASSED, lock_line(running_page))
