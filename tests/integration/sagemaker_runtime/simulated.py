"""A test's interface to the simulated SageMaker."""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.client import BaseClient
from service import SageMakerService
from simulated_instances import Instances

from cloudtrain import Estimator, Job

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1"
ROLE = "arn:aws:iam::123456789012:role/SageMakerRole"


@dataclass
class SimulatedSageMaker:
    """The service, its instances, and a bucket for inputs and outputs of jobs."""

    service: SageMakerService
    instances: Instances
    bucket: str
    folder: Path

    def estimator(self, script: str, **arguments: Any) -> Estimator:
        """An estimator whose source is the file ``train.py`` with ``script``."""
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        (source / "train.py").write_text(textwrap.dedent(script))
        return self.estimator_of(source, **arguments)

    def estimator_of(self, source: Path, **arguments: Any) -> Estimator:
        """An estimator for the folder ``source``, with the entry point ``train.py``."""
        fixed = {
            "image_uri": IMAGE,
            "role": ROLE,
            "instance_type": "ml.m5.xlarge",
            "output_path": f"s3://{self.bucket}/out",
            "code_location": f"s3://{self.bucket}/code",
            "platform": "sagemaker",
            "source_dir": str(source),
        }
        return Estimator("train.py", **{**fixed, **arguments})

    def states(self, job_name: str) -> list[str]:
        """The job's secondary states so far."""
        return [found["Status"] for found in self.service.jobs[job_name].transitions]

    def requests_of(self, work: Callable[[], object]) -> list[str]:
        """The AWS operations that this thread calls in ``work``."""
        calls: list[str] = []
        me = threading.get_ident()

        def note(self: Any, operation: str, *arguments: Any, **options: Any) -> Any:
            if threading.get_ident() == me:
                calls.append(operation)
            return original(self, operation, *arguments, **options)

        original = BaseClient._make_api_call
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BaseClient, "_make_api_call", note)
            work()
        return calls

    def wait_for_line(self, job: Job, text: str, timeout: float = 120) -> None:
        """Wait until the job has printed ``text``."""
        wait_until(lambda: text in job.logs() or job.status.is_final, timeout)
        assert text in job.logs()


def wait_until(condition: Callable[[], object], timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)
