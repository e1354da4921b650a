"""The advice for copies in memory that do not fit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloudtrain.checkpoint.memory.small_file_system import _enlarge, advice_for


def test_a_file_system_with_space_is_not_the_limit(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    assert advice_for(tmp_path, status.f_blocks * status.f_frsize, {})
    assert advice_for(tmp_path, -status.f_blocks * status.f_frsize, {}) == ""


@pytest.mark.parametrize(
    ("environ", "in_container", "expected"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True, "emptyDir of medium Memory"),
        ({}, True, "--shm-size of docker run"),
        ({"SLURM_JOB_ID": "7"}, False, "Apptainer"),
    ],
)
def test_what_to_do_by_place(environ: dict[str, str], in_container: bool, expected: str) -> None:
    advice = _enlarge(environ, in_container)
    assert expected in advice
    assert "CLOUDTRAIN_CHECKPOINT_MEMORY" in advice
