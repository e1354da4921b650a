"""A simulated SageMaker as a context: the scripted service, instances that run its jobs, and a bucket."""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import relay
from host_network import Machine, Network, NetworkError
from service import sagemaker_service
from simulated import SimulatedSageMaker
from simulated_instances import Instances

from cloudtrain.testing import S3Server


@contextmanager
def simulated_sagemaker(s3_server: S3Server, folder: Path) -> Iterator[SimulatedSageMaker]:
    """SageMaker with the instances algo-1 and algo-2, selected by AWS variables. Skips if they cannot run here."""
    bucket = f"test-{secrets.token_hex(6)}"
    s3_server.create_bucket(bucket)
    with ExitStack() as stack:
        try:
            network = stack.enter_context(Network(2, folder, "algo-"))
        except NetworkError as error:
            if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
                raise
            pytest.skip(str(error))
        instances = Instances(network.machines, folder / "instances")
        service = stack.enter_context(sagemaker_service())
        service.on_create = instances.run
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {**s3_server.env, "AWS_ENDPOINT_URL": service.endpoint}.items():
            patch.setenv(name, value)
        stack.callback(instances.close)
        yield SimulatedSageMaker(service, instances, bucket, folder)


@contextmanager
def s3_on(machines: list[Machine], s3_server: S3Server, folder: Path) -> Iterator[None]:
    """Make the S3 server reachable from the machines' isolated network, at the same address."""
    address = s3_server.env["AWS_ENDPOINT_URL_S3"].rpartition("/")[2]
    door = str(folder / "s3")
    with closing(relay.listen(door)) as listener, ExitStack() as stack, open(os.devnull, "wb") as output:
        threading.Thread(target=relay.relay, args=(listener, address), daemon=True).start()
        for machine in machines:
            command = [sys.executable, relay.__file__, address, door]
            program = machine.start(command, cwd=folder, env={}, output=output)
            stack.callback(program.kill)
        yield
