"""Tensors sharded in every way, restored with other shardings and unsharded."""

from __future__ import annotations

import pytest
from shard_ranks import run


@pytest.mark.timeout(400)
def test_saved_in_one_layout_and_restored_in_others(uri: str) -> None:
    run("layouts.py", 4, "save", uri)
    run("layouts.py", 3, "restore", uri)
