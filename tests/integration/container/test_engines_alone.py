"""The test engines themselves: the environment of their containers, and their cleanup."""

from __future__ import annotations

import json
from contextlib import closing

import docker
import pytest
from engine_daemon import USER, Engine

LOOK = """
import importlib.util, json, os, shutil, socket
print(json.dumps([
    os.getuid(), [name for name in ("torch", "cloudtrain") if importlib.util.find_spec(name)],
    os.path.basename(shutil.which("mpirun") or ""), [name for _, name in socket.if_nameindex()],
]))
"""


@pytest.mark.parametrize("name", ["engine", "podman"])
def test_what_a_container_finds(name: str, request: pytest.FixtureRequest, base_image: str) -> None:
    engine: Engine = request.getfixturevalue(name)
    with closing(docker.DockerClient(base_url=engine.url)) as client:
        container = client.containers.create(
            base_image, ["python", "-c", LOOK], user=USER, network_mode="none"
        )
        output = container.attach(
            stream=True
        )  # an engine's log may lack the last lines when a container has ended
        container.start()
        said = b"".join(output)
        container.remove(force=True)
    assert json.loads(said) == [1000, ["torch"], "mpirun", ["lo"]]
    assert engine.leftovers() == []
