"""Checkpoints on failing storage."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from pure_state import same, state_of

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.errors import CheckpointError, NotFound
from cloudtrain.storage import open_store

NO_SPACE = """
    import sys
    import numpy as np
    from cloudtrain.checkpoint import Checkpointer
    from cloudtrain.errors import CheckpointError
    from cloudtrain.storage import open_store

    checkpointer = Checkpointer(sys.argv[1], asynchronous=False)
    checkpointer.save(1, {"weights": np.arange(100_000)})
    before = list(open_store(checkpointer.uri).list())
    for _ in range(2):
        try:
            checkpointer.save(2, {"weights": np.zeros(10_000_000)})
        except CheckpointError as error:
            print(error)
        assert list(open_store(checkpointer.uri).list()) == before
    checkpointer.save(3, {"weights": np.arange(10)})
    assert checkpointer.steps() == [1, 3]
    assert np.array_equal(checkpointer.restore(1).state["weights"], np.arange(100_000))
"""


def test_no_space_left(tmp_path: Path) -> None:
    """On a file system of 4 MB, in a separate mount namespace."""
    script = 'mount -t tmpfs -o size=4m tmpfs "$1" && exec "$2" -c "$3" "$1/checkpoints"'
    isolated = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*isolated, "mount", "-t", "tmpfs", "tmpfs", tmp_path], check=False).returncode:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "no mount namespaces on this machine"
        pytest.skip("no mount namespaces on this machine")
    done = subprocess.run(
        [*isolated, "sh", "-c", script, "sh", tmp_path, sys.executable, textwrap.dedent(NO_SPACE)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("step-000000000002") == 2
    assert "space" in done.stdout


def test_a_damaged_object_in_any_storage(uri: str) -> None:
    checkpointer = Checkpointer(uri, asynchronous=False)
    for step in (1, 2):
        checkpointer.save(step, state_of(step))
    store = open_store(uri)
    (victim,) = (entry.key for entry in store.list("step-000000000002") if entry.key.endswith("tree.json"))
    store.write(victim, store.read(victim)[:-1] + b" ")
    with pytest.warns(RuntimeWarning, match="checkpoint 2 in"):
        checkpoint = Checkpointer(uri).restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(1))


def test_a_rejected_state_leaves_nothing(uri: str) -> None:
    with pytest.raises(CheckpointError):
        Checkpointer(uri).save(1, {"fine": np.ones(3), "not": object()})
    assert list(open_store(uri).list()) == []


def test_deleted_checkpoints_leave_no_object(uri: str) -> None:
    checkpointer = Checkpointer(uri, keep=1, asynchronous=False)
    for step in (1, 2, 3):
        checkpointer.save(step, state_of(step))
    assert {entry.key.split("/")[0] for entry in open_store(uri).list()} == {"step-000000000003"}


def test_a_bucket_that_does_not_exist(s3: str) -> None:
    checkpointer = Checkpointer(f"s3://{s3}-gone/checkpoints")
    with pytest.raises(NotFound, match=f"{s3}-gone"):
        checkpointer.restore()
    checkpointer.save(1, {})
    with pytest.raises(CheckpointError, match=f"checkpoint 1 was not saved: .*{s3}-gone"):
        checkpointer.wait()


WITHOUT_TORCH = """
    import sys
    sys.modules["torch"] = None  # importing it fails
    import numpy as np
    from cloudtrain.checkpoint import Checkpointer

    Checkpointer(sys.argv[1], asynchronous=False).save(2, {"weights": np.arange(6).reshape(2, 3)})
    assert Checkpointer(sys.argv[1]).restore(2).state["weights"].tolist() == [[0, 1, 2], [3, 4, 5]]
    try:
        Checkpointer(sys.argv[1]).restore(1)
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_numpy_without_torch(tmp_path: Path) -> None:
    import torch

    Checkpointer(tmp_path, asynchronous=False).save(1, {"weights": torch.ones(2)})
    command = [sys.executable, "-c", textwrap.dedent(WITHOUT_TORCH), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CheckpointError the checkpoint holds tensors of torch")


def test_plain_values_without_numpy(tmp_path: Path) -> None:
    script = """
        import sys
        sys.modules["numpy"] = sys.modules["torch"] = None
        from cloudtrain.checkpoint import Checkpointer

        Checkpointer(sys.argv[1], asynchronous=False).save(1, {"epoch": 1, "lr": (0.1, None)}, {"loss": 0.5})
        assert Checkpointer(sys.argv[1]).restore().state == {"epoch": 1, "lr": (0.1, None)}
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_no_permission(tmp_path: Path) -> None:
    """Runs as a user without write access, as root may write everywhere."""
    script = """
        import os, sys
        from cloudtrain.checkpoint import Checkpointer
        from cloudtrain.errors import CheckpointError

        if os.getuid() == 0:
            os.setuid(65534)
        checkpointer = Checkpointer(sys.argv[1])
        checkpointer.save(1, {"epoch": 1})
        try:
            checkpointer.wait()
        except CheckpointError as error:
            print(error)
    """
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    (tmp_path / "run").mkdir(mode=0o555)
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "checkpoint 1 was not saved" in done.stdout
    assert "Permission denied" in done.stdout
    assert list((tmp_path / "run").iterdir()) == []


def test_a_clock_that_goes_backwards(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checkpointer(uri, keep=2) as checkpointer:
        for step in range(1, 5):
            monkeypatch.setattr("time.time", lambda step=step: 1e9 - 1e6 * step)
            checkpointer.save(step, state_of(step))
    assert Checkpointer(uri).steps() == [3, 4]
    checkpoint = Checkpointer(uri).restore()
    assert checkpoint is not None
    assert same(checkpoint.state, state_of(4))


def test_tens_of_thousands_of_tensors(uri: str) -> None:
    state = {str(index): np.full(index % 7, index, dtype=np.int32) for index in range(20_000)}
    Checkpointer(uri, asynchronous=False).save(1, state)
    objects = [entry for entry in open_store(uri).list() if entry.key.endswith(".safetensors")]
    assert len(objects) == 1
    checkpoint = Checkpointer(uri).restore()
    assert checkpoint is not None
    assert checkpoint.state.keys() == state.keys()
    assert all(np.array_equal(checkpoint.state[name], state[name]) for name in state)
