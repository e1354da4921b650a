"""Ends what the views of a test do in threads: it would write into the index of later tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_looks_are_left() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name in ("cloudtrain-top", "history") or thread.name.startswith("ask "):
            thread.join(120)
            assert not thread.is_alive(), f"the test has left a thread: {thread.name}"
