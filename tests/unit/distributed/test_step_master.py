"""Ranks of a Slurm step find rank 0 through a file that only their user can read."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudtrain.contract.slurm_step import step_key
from cloudtrain.distributed import CollectiveError, World
from cloudtrain.distributed.negotiation import rendezvous
from cloudtrain.storage.atomic import write_private

STEP = {
    "SLURM_JOB_ID": "5",
    "SLURM_STEP_ID": "0",
    "SLURMD_NODENAME": "n1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
RANK_0, RANK_1 = World(0, 2, 0, 1, 0, 2), World(1, 2, 0, 1, 1, 2)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Each test plays several processes."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(rendezvous, "_known", None)
    monkeypatch.setattr(rendezvous, "_published", None)
    yield
    rendezvous.all_have_read()


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_known", None)


def test_the_other_ranks_read_what_rank_0_has_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of_rank_0 = rendezvous.find_master(RANK_0, 1, STEP)
    published = rendezvous.published_secret()
    [file] = (tmp_path / "home" / "steps").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (of_rank_0.master_addr, len(published)) == ("n1", 64)
    another_process(monkeypatch)
    of_rank_1 = rendezvous.find_master(RANK_1, 1, STEP)
    assert (of_rank_1.master_addr, of_rank_1.master_port) == (of_rank_0.master_addr, of_rank_0.master_port)
    assert rendezvous.published_secret() == published
    rendezvous.all_have_read()
    assert not file.exists()
    assert rendezvous.find_master(RANK_1, 0, STEP) == of_rank_1  # a second init of the same process


def test_on_one_host_rank_0_listens_on_loopback() -> None:
    assert rendezvous.find_master(World(0, 2, 0, 2, 0, 1), 1, STEP).master_addr == "127.0.0.1"


def test_a_rank_waits_for_rank_0_and_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(
        CollectiveError, match=r"did not publish its address in .*/home/steps within 0.1 s"
    ) as caught:
        rendezvous.find_master(RANK_1, 0.1, STEP)
    assert "CLOUDTRAIN_HOME" in caught.value.hint


def test_a_late_rank_0(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: list[World] = []
    (tmp_path / "home" / "steps").mkdir(parents=True)
    waiting = threading.Thread(target=lambda: found.append(rendezvous.find_master(RANK_1, 10, STEP)))
    waiting.start()
    write_private(tmp_path / "home" / "steps" / step_key(STEP), json.dumps(["n7", 29500, "s"]))
    waiting.join()
    assert (found[0].master_addr, found[0].master_port, rendezvous.published_secret()) == ("n7", 29500, "s")


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "home" / "steps" / step_key(STEP)
    path.parent.mkdir(parents=True)
    path.write_text('["attacker", 1, "known"]')
    path.chmod(0o644)
    with pytest.raises(CollectiveError, match="is not a file that only this user can read"):
        rendezvous.find_master(RANK_1, 1, STEP)


@pytest.mark.parametrize("text", ["{", "[]", "[1, 2]", '["a", "port", "s"]', "7", "null"])
def test_a_damaged_file_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "home" / "steps" / step_key(STEP)
    path.parent.mkdir(parents=True)
    write_private(path, text)
    with pytest.raises(CollectiveError, match="does not have the address of rank 0"):
        rendezvous.find_master(RANK_1, 1, STEP)


def test_a_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "file"))
    with pytest.raises(CollectiveError) as caught:
        rendezvous.find_master(RANK_0, 1, STEP)
    assert "CLOUDTRAIN_HOME" in caught.value.hint


def test_the_address_is_that_of_the_route_to_srun() -> None:
    assert rendezvous.own_address({**STEP, "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1"}) == "n1"
    assert rendezvous.own_address({"SLURM_LAUNCH_NODE_IPADDR": "no such host"}) == os.uname().nodename
