"""The folders of a host on its node."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.contract import Paths
from cloudtrain.runtime.start.node_folder import host_folder


@pytest.mark.parametrize("on_node", [False, True])
def test_an_earlier_attempt_that_ends_late_leaves_the_run_folder_of_the_next(
    tmp_path: Path, on_node: bool
) -> None:
    """A scheduler requeues a job when its first node is lost, while processes on other nodes still end."""
    shared = tmp_path / "host"
    Paths(shared).make()
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    earlier = host_folder(shared, first, on_node=on_node)
    later = host_folder(shared, second, on_node=on_node)
    run = shared / "run"
    expected = (second / "base/run" if on_node else second / "run").resolve()
    earlier.close()
    assert run.resolve() == expected and run.is_dir()
    later.close()
    assert not run.is_symlink()
