"""SageMaker, played: the scripted service, and instances that really run what it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "hosts"), str(HERE.parent / "sagemaker")]

from host_network import Network, NetworkError  # noqa: E402
from played import Played  # noqa: E402
from played_instances import Instances  # noqa: E402
from service import sagemaker_service  # noqa: E402


@pytest.fixture
def sagemaker(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    """SageMaker with instances algo-1 and algo-2, and a bucket; the environment leads there."""
    try:
        network = Network(2, tmp_path, "algo-").__enter__()
    except NetworkError as error:
        if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
            raise
        pytest.skip(str(error))
    instances = Instances(network.machines, tmp_path / "instances")
    try:
        with sagemaker_service() as service:
            service.on_create = instances.play
            monkeypatch.setenv("AWS_ENDPOINT_URL", service.endpoint)
            try:
                yield Played(service, instances, s3, tmp_path)
            finally:
                instances.close()
    finally:
        network.__exit__()
