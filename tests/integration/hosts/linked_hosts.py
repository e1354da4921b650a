"""Linked machines for a test, which is skipped where there can be none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from host_network import Machine, Network, NetworkError


@contextmanager
def linked(count: int, folder: Path, **options: str) -> Iterator[list[Machine]]:
    """Linked machines: n1, n2, ...; ``options`` are those of `Network`."""
    with ExitStack() as stack:
        try:
            network = stack.enter_context(Network(count, folder, **options))
        except NetworkError as error:
            missing(str(error))
        yield network.machines


def missing(what: str) -> NoReturn:
    """Skip the test; fail if nothing may be skipped."""
    if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
        pytest.fail(what)
    pytest.skip(what)
