"""``cloudtrain checkpoints`` on a folder and on a real S3 server."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format.layout import manifest_key
from cloudtrain.checkpoint.inspect import list_checkpoints
from cloudtrain.cli import cli
from cloudtrain.errors import CheckpointError, CloudtrainError, NotFound
from cloudtrain.storage import Store, open_store

FROZEN = np.arange(1 << 20, dtype=np.float32)
"""4 MiB that never change, and 4 MiB that change at every step."""


def state(step: int) -> dict[str, Any]:
    return {"frozen": FROZEN, "head": np.full(1 << 20, step, np.float32), "epoch": step}


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Steps 1 to 4. Step 2 reveals that one part is frozen, and later steps refer to it there."""
    uri = (
        (tmp_path / "run").as_uri()
        if request.param == "file"
        else f"s3://{request.getfixturevalue('s3')}/run"
    )
    with Checkpointer(uri, keep=None) as checkpointer:
        for step in range(1, 5):
            checkpointer.save(step, state(step), {"loss": 1 / step})
            checkpointer.wait()
    return uri


def run(*arguments: str, confirm: str = "") -> Result:
    return CliRunner().invoke(cli, ["checkpoints", *arguments], input=confirm)


def done(*arguments: str) -> Any:
    """The JSON output of a command."""
    result = run(*arguments, "--json")
    assert result.exception is None, result.output
    return json.loads(result.stdout)


def objects(store: Store, step: int) -> list[str]:
    """The keys of the objects added by ``step``."""
    return [entry.key for entry in store.list(f"step-{step:012d}/") if entry.key != manifest_key(step)]


def head(store: Store, step: int) -> str:
    """The object with the part that changes at every step."""
    return max(key for key in objects(store, step) if "tensors" in key)


def flip_a_bit(store: Store, step: int) -> str:
    key = head(store, step)
    data = bytearray(store.read(key))
    data[-1] ^= 1
    store.write(key, bytes(data))
    return key


def test_list(place: str) -> None:
    listed = done("list", place)
    assert [entry["step"] for entry in listed] == [1, 2, 3, 4]
    first, last = listed[0], listed[-1]
    assert (first["references"], last["references"]) == ([], [2])
    assert last["size"] > 8 << 20
    assert 4 << 20 < last["added"] < 5 << 20
    assert last["metrics"] == {"loss": 0.25}
    assert (last["world_size"], last["problem"]) == (1, None)
    text = run("list", place).stdout
    assert [line.split()[0] for line in text.splitlines()] == ["STEP", "1", "2", "3", "4"]
    assert "loss 0.25" in text


def test_show(place: str) -> None:
    shown = done("show", place)
    assert (shown["step"], list(shown["tensors"])) == (4, ["frozen", "head"])
    assert shown["tensors"]["head"]["shape"] == [1 << 20]
    text = run("show", place, "--step", "3").stdout
    assert text.startswith("step 3 in ")
    assert "refers to  step 2" in text
    assert "1048576" in text
    with pytest.raises(CheckpointError, match="has no checkpoint of step 9\n  Steps: 1, 2, 3, 4"):
        _raise(run("show", place, "--step", "9"))


def _raise(result: Result) -> None:
    assert isinstance(result.exception, CloudtrainError), result.output
    raise result.exception


def test_verify_finds_damage(place: str) -> None:
    whole = run("verify", place)
    assert (whole.exit_code, "every byte is as it was saved" in whole.stdout) == (0, True)
    store = open_store(place)
    flipped = flip_a_bit(store, 3)
    lost = head(store, 2)
    store.delete([lost])
    store.write(manifest_key(4), b'{"version": 1}'.ljust(99))
    result = run("verify", place, "--json")
    assert result.exit_code == 1
    assert [
        (found["step"], found["key"], found["problem"]) for found in json.loads(result.stdout)["damage"]
    ] == [
        (2, lost, "is missing"),
        (3, flipped, "differs from what was saved"),
        (4, manifest_key(4), "its manifest is not readable: KeyError('sha256')"),
    ]
    text = run("verify", place, "--step", "3")
    assert (text.exit_code, text.stdout) == (1, f"step 3: {flipped} differs from what was saved\n")
    listed = {info.step: info.problem for info in list_checkpoints(store)}
    assert (listed[1], listed[2], listed[3]) == ("", f"{lost} is missing", "")
    assert f"2  damaged: {lost} is missing" in run("list", place).stdout


def test_a_damaged_frozen_object_damages_all_checkpoints_that_refer_to_it(place: str) -> None:
    store = open_store(place)
    frozen = min(key for key in objects(store, 2) if "tensors" in key)
    store.write(frozen, b"x" * len(store.read(frozen)))
    damage = json.loads(run("verify", place, "--json").stdout)["damage"]
    assert [(found["step"], found["key"]) for found in damage] == [(2, frozen), (3, frozen), (4, frozen)]


def test_download_can_be_restored_from(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    assert done("download", place, "--step", "3", "--to", str(folder))["step"] == 3
    restored = Checkpointer(folder).restore()
    assert restored is not None
    assert (restored.step, restored.metrics["loss"]) == (3, pytest.approx(1 / 3))
    assert np.array_equal(restored.state["head"], state(3)["head"])
    again = run("download", place, "--step", "3", "--to", str(folder))
    with pytest.raises(CheckpointError, match="already has step 3"):
        _raise(again)
    done("download", place, "--to", str(folder))
    assert Checkpointer(folder).steps() == [3, 4]


def test_a_damaged_checkpoint_is_not_downloaded(place: str, tmp_path: Path) -> None:
    flip_a_bit(open_store(place), 4)
    with pytest.raises(CheckpointError, match=r"step 4 in .* is damaged: .* differs from what was saved"):
        _raise(run("download", place, "--to", str(tmp_path / "copy")))
    assert not (tmp_path / "copy").exists()


def test_prune_keeps_objects_to_which_others_refer(place: str) -> None:
    before = {entry.key for entry in open_store(place).list()}
    planned = done("prune", place, "--keep", "2")
    assert (planned["steps"], planned["deleted"]) == ([1, 2], False)
    assert 12 << 20 < planned["freed"] < 13 << 20  # all of step 1, and the head of step 2
    refused = run("prune", place, "--keep", "2", confirm="n\n")
    assert "step 1\n  step 2\n" in refused.stdout
    assert {entry.key for entry in open_store(place).list()} == before
    assert done("prune", place, "--keep", "2", "--yes")["deleted"]
    assert Checkpointer(place).steps() == [3, 4]
    assert run("verify", place).exit_code == 0
    assert objects(open_store(place), 2)  # the frozen part
    assert done("prune", place, "--keep", "1", "--yes")["steps"] == [3]
    restored = Checkpointer(place).restore()
    assert restored is not None
    assert np.array_equal(restored.state["frozen"], FROZEN)
    assert done("prune", place, "--keep", "1")["steps"] == []
    assert "Nothing to delete" in run("prune", place, "--keep", "1").stdout


def test_prune_does_not_count_damaged_checkpoints(place: str) -> None:
    store = open_store(place)
    store.delete([head(store, 4)])
    assert done("prune", place, "--keep", "1")["steps"] == [1, 2]


def test_prune_deletes_leftovers_on_request(place: str) -> None:
    store = open_store(place)
    old, new = (
        "step-000000000003/dead/tensors-00000.safetensors",
        "step-000000000009/x/tensors-00000.safetensors",
    )
    between = "step-000000000000/dead/tree.json"
    for key in (old, new, between):
        store.write(key, b"left")
    planned = done("prune", place, "--leftovers", "--yes")
    assert (planned["steps"], planned["leftovers"], planned["freed"]) == ([], [between, old], 8)
    keys = {entry.key for entry in store.list()}
    assert not keys & {old, between}
    assert new in keys  # a save may be in progress there
    assert Checkpointer(place).steps() == [1, 2, 3, 4]
    assert run("verify", place).exit_code == 0
    with Checkpointer(place) as checkpointer:
        checkpointer.restore()
        checkpointer.save(5, state(5))
    assert checkpointer.steps()[-1] == 5


def test_prune_deletes_temporary_files_and_empty_folders(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, keep=1) as checkpointer:
        for step in range(1, 4):
            checkpointer.save(step, {"epoch": step})
    dead, alive = (tmp_path / f"step-00000000000{step}/{step}{step}/.cloudtrain-tmp-ab" for step in (8, 9))
    foreign = tmp_path / "notes" / ".cloudtrain-tmp-ab"
    for path in (dead, alive, foreign):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half")
    for step in (1, 2):  # an earlier version left them
        (tmp_path / f"step-00000000000{step}" / "save").mkdir(parents=True)
    for path in tmp_path.rglob("*"):
        if path != alive and alive.parent not in path.parents:
            os.utime(path, (time.time() - 90_000,) * 2)
    planned = done("prune", str(tmp_path), "--leftovers")
    assert (planned["unfinished"], planned["empty_folders"], planned["freed"]) == (
        [dead.relative_to(tmp_path).as_posix()],
        4,
        4,
    )
    assert "empty folders: 4" in run("prune", str(tmp_path), "--leftovers", confirm="n\n").stdout
    assert dead.exists()
    done("prune", str(tmp_path), "--leftovers", "--yes")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "notes",
        "step-000000000003",
        "step-000000000009",
    ]
    assert alive.exists()
    assert foreign.exists()
    assert Checkpointer(tmp_path).steps() == [3]


def test_prune_removes_the_folders_that_it_empties(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, keep=None) as checkpointer:
        for step in range(1, 4):
            checkpointer.save(step, {"epoch": step})
    done("prune", str(tmp_path), "--keep", "1", "--yes")
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000003"]


def test_a_later_format_is_left_alone(place: str) -> None:
    from cloudtrain.checkpoint.format import manifest

    store = open_store(place)
    document = json.loads(store.read(manifest_key(4)))
    document.pop("sha256")
    document["version"] = 99
    store.write(manifest_key(4), json.dumps({**document, "sha256": manifest._digest(document)}).encode())
    with pytest.raises(CheckpointError, match="cannot be pruned here: step 4 was saved in format 99"):
        _raise(run("prune", place, "--keep", "1", "--yes"))
    assert "saved in format 99" in run("list", place).stdout


@pytest.mark.parametrize("arguments", [("list",), ("show",), ("verify",), ("prune", "--keep", "1")])
def test_a_place_that_does_not_exist(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no job or folder"):
        _raise(run(arguments[0], str(tmp_path / "nosuch"), *arguments[1:]))


def test_an_empty_place(tmp_path: Path) -> None:
    assert done("list", str(tmp_path)) == []
    assert "No checkpoints in" in run("list", str(tmp_path)).stderr
    with pytest.raises(CheckpointError, match="has no checkpoints"):
        _raise(run("verify", str(tmp_path)))


def test_prune_requires_an_option(tmp_path: Path) -> None:
    result = run("prune", str(tmp_path))
    assert (result.exit_code, "--keep N" in result.stderr) == (2, True)
