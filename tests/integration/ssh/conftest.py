"""Login nodes for the tests of this folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from login_node import ALIAS, LoginNode, NewNode

from cloudtrain.platforms.batch.control import log_out


@pytest.fixture
def new_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[NewNode]:
    """Starts a login node ``kraken``, and gives the client its own state folder."""
    with ExitStack() as stack:

        def start(**fields: Any) -> LoginNode:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ct", dir="/tmp")))
            monkeypatch.setenv("CLOUDTRAIN_HOME", str(folder / "home"))
            node = LoginNode(folder / "node", **fields)
            monkeypatch.setenv("PATH", f"{node.folder}/bin:{os.environ['PATH']}")
            stack.callback(node.stop)
            stack.callback(log_out, ALIAS)
            return node

        yield start


@pytest.fixture
def node(new_node: NewNode) -> LoginNode:
    return new_node()
