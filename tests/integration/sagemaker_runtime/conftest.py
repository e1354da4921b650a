"""A simulated SageMaker for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "hosts"), str(HERE.parent / "sagemaker")]

from simulated import SimulatedSageMaker  # noqa: E402
from simulation import simulated_sagemaker  # noqa: E402

from cloudtrain.testing import S3Server  # noqa: E402


@pytest.fixture
def sagemaker(s3_server: S3Server, tmp_path: Path) -> Iterator[SimulatedSageMaker]:
    with simulated_sagemaker(s3_server, tmp_path) as simulated:
        yield simulated
