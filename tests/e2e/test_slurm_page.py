"""The commands of the page about Slurm run on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import REPOSITORY, Reader
from slurm_cluster import SlurmCluster

PAGES = ["docs/guides/slurm.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_runs(page: str, slurm: SlurmCluster, tmp_path: Path) -> None:
    assert Reader(tmp_path).follow(REPOSITORY / page) > 0
