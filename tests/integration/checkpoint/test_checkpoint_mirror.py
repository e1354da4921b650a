"""A fast local folder in front of an S3 server: the checkpoints of either are found."""

from __future__ import annotations

import shutil
from pathlib import Path

from pure_state import same, state_of

from cloudtrain.checkpoint import Checkpointer


def test_local_first_and_durable_in_s3(s3: str, tmp_path: Path) -> None:
    uri, local = f"s3://{s3}/checkpoints", tmp_path / "local"
    with Checkpointer(uri, local=local, keep=2) as checkpointer:
        for step in range(1, 5):
            checkpointer.save(step, state_of(step))
    assert Checkpointer(uri).steps() == Checkpointer(local).steps() == [3, 4]
    shutil.rmtree(local)
    with Checkpointer(uri, local=local) as resumed:
        checkpoint = resumed.restore()
        assert checkpoint is not None
        assert checkpoint.step == 4
        assert same(checkpoint.state, state_of(4))
        resumed.save(5, state_of(5))
    checkpoint = Checkpointer(local).restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(5))
