"""Ranks of one host find rank 0 through a file if the launcher sets no master address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from cloudtrain.distributed import CollectiveError, World
from cloudtrain.distributed.negotiation.rendezvous import find_master

NOBODY = 65534

TWO = World(rank=0, size=2, local_size=2)
OTHER = World(rank=1, size=2, local_rank=1, local_size=2)


@pytest.fixture
def session(tmp_path: Path) -> dict[str, str]:
    """mpirun's variable for its session directory."""
    return {"PMIX_SERVER_TMPDIR": str(tmp_path)}


@pytest.mark.parametrize(
    "world",
    [World(), World(1, 2, 0, 1, 1, 2, "algo-1", 7777)],
    ids=["single rank", "address set"],
)
def test_no_file_is_needed(world: World, session: dict[str, str], tmp_path: Path) -> None:
    assert find_master(world, 0.0, session) is world
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["", "127.0.0.1"])
def test_rank_0_chooses_a_port_and_the_others_read_it(address: str, session: dict[str, str]) -> None:
    leader = find_master(World(0, 2, 0, 2, master_addr=address), 1.0, session)
    assert leader.master_addr == "127.0.0.1"
    with socket.create_server((leader.master_addr, leader.master_port)):
        pass
    follower = find_master(World(1, 2, 1, 2, master_addr=address), 1.0, session)
    assert (follower.master_addr, follower.master_port) == (leader.master_addr, leader.master_port)
    assert (follower.rank, leader.rank) == (1, 0)


def test_other_ranks_wait_for_rank_0(session: dict[str, str]) -> None:
    found: list[World] = []
    waiting = threading.Thread(target=lambda: found.append(find_master(OTHER, 120.0, session)))
    waiting.start()
    leader = find_master(TWO, 1.0, session)
    waiting.join(120)
    assert [world.master_port for world in found] == [leader.master_port]


def test_rank_0_publishes_no_port(session: dict[str, str]) -> None:
    with pytest.raises(
        CollectiveError, match=r"rank 1 of 2 on .*: rank 0 did not publish its address in .* within 0.1 s"
    ):
        find_master(OTHER, 0.1, session)


def test_a_second_init_uses_the_port_of_the_first(session: dict[str, str]) -> None:
    """Another port would make a rank that is faster than rank 0 wait at the old one."""
    assert find_master(TWO, 1.0, session) == find_master(TWO, 1.0, session)


def test_ranks_of_one_parent_share_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    port = find_master(TWO, 1.0, {}).master_port
    assert find_master(OTHER, 1.0, {"PMIX_SERVER_TMPDIR": "/nowhere"}).master_port == port
    [folder] = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == [f"master-{os.getppid()}"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes links of others")
def test_a_symlink_instead_of_the_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    link = tmp_path / f"cloudtrain-{os.getuid()}"
    link.symlink_to(elsewhere)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(
        CollectiveError, match=r"there is no folder of this user only: .* is a link of another user"
    ):
        find_master(TWO, 1.0, {})
    assert list(elsewhere.iterdir()) == []


def test_rank_0_removes_the_file_at_exit(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from cloudtrain.distributed import World\n"
        "from cloudtrain.distributed.negotiation.rendezvous import find_master\n"
        "find_master(World(size=2, local_size=2), 1.0, {'PMIX_SERVER_TMPDIR': sys.argv[1]})\n"
        "import os; print(*os.listdir(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.split() == ["cloudtrain-master"]
    assert list(tmp_path.iterdir()) == []
