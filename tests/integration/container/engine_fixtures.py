"""Engines as fixtures, in a plugin that several test folders use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import engine_daemon
import pytest
from engine_daemon import Engine, EngineError


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Docker, one per pytest-xdist worker. Jobs select it with ``engine=engine.url``."""
    yield from _started(engine_daemon.docker_engine, tmp_path_factory)


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Podman, one per pytest-xdist worker."""
    yield from _started(engine_daemon.podman_engine, tmp_path_factory)


@pytest.fixture(scope="session")
def base_image() -> str:
    """The name of the image that all engines have. It has this Python with torch, and Open MPI, but not cloudtrain."""
    return engine_daemon.IMAGE


def _started(
    start: Callable[[Path], AbstractContextManager[Engine]], factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    with ExitStack() as stack:
        try:
            engine = stack.enter_context(start(factory.mktemp("engine")))
        except EngineError as error:
            if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
                raise
            pytest.skip(str(error))
        yield engine
