"""init and shutdown: alone, together, repeatedly, under torchrun, and without a possible rendezvous."""

from __future__ import annotations

import re
import socket
import subprocess
import sys

import pytest
from ranks import PROGRAMS, Ended, run_each, run_ranks

from cloudtrain.contract import RankSlot
from cloudtrain.runtime.ports import free_port


def lines(ended: list[Ended]) -> list[str]:
    assert [rank.returncode for rank in ended] == [0] * len(ended), "\n".join(rank.stderr for rank in ended)
    return [rank.stdout.strip() for rank in ended]


def test_without_variables_there_is_one_rank_and_no_group() -> None:
    assert lines(run_ranks("_starts.py", 1, "together")) == ["0 1 0 1 0 1 0 False False"]


@pytest.mark.parametrize("way", ["together", "again", "comm"])
def test_two_ranks(way: str) -> None:
    assert lines(run_ranks("_starts.py", 2, way)) == [
        "0 2 0 2 0 1 1 False False",
        "1 2 1 2 0 1 1 False False",
    ]


def test_two_hosts_of_two_ranks() -> None:
    port = free_port()
    slots = [slot for host in range(2) for slot in RankSlot.on_host(host, 2, 2)]
    ended = run_each("_starts.py", [slot.environment("127.0.0.1", port) for slot in slots], "together")
    assert lines(ended) == [
        "0 4 0 2 0 2 6 False False",
        "1 4 1 2 0 2 6 False False",
        "2 4 0 2 1 2 6 False False",
        "3 4 1 2 1 2 6 False False",
    ]


def test_a_process_group_of_the_script_is_used_and_kept() -> None:
    assert lines(run_ranks("_starts.py", 2, "own group")) == [
        "0 2 0 2 0 1 1 False True",
        "1 2 1 2 0 1 1 False True",
    ]


@pytest.mark.parametrize(
    "names",
    [
        ("OMPI_COMM_WORLD_{}", "OMPI_COMM_WORLD_LOCAL_{}"),
        ("PMI_{}", ""),
        ("HOROVOD_{}", "HOROVOD_LOCAL_{}"),
    ],
    ids=["Open MPI", "MPICH", "horovodrun"],
)
def test_ranks_of_one_host_without_a_master_address(names: tuple[str, str]) -> None:
    """They have the same parent: this process."""
    of_all, of_host = names
    environments = []
    for rank in range(2):
        variables = {of_all.format("RANK"): f"{rank}", of_all.format("SIZE"): "2"}
        local = {of_host.format("RANK"): f"{rank}", of_host.format("SIZE"): "2"} if of_host else {}
        mpich = {"MPI_LOCALRANKID": f"{rank}", "MPI_LOCALNRANKS": "2"}
        environments.append({**variables, **(local or mpich)})
    assert lines(run_each("_starts.py", environments, "together")) == [
        "0 2 0 2 0 1 1 False False",
        "1 2 1 2 0 1 1 False False",
    ]


def test_a_list_of_some_ranks() -> None:
    for ended in run_ranks("_starts.py", 2, "part of comm"):
        assert ended.returncode == 3
        assert ended.stdout.startswith("InvalidArgument: comm=[0]: init takes all 2 ranks of the job")


def test_under_torchrun() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ended = subprocess.run(
        [*command, str(PROGRAMS / "_starts.py"), "again"], capture_output=True, text=True, timeout=120
    )
    assert sorted(ended.stdout.splitlines()) == ["0 2 0 2 0 1 1 False False", "1 2 1 2 0 1 1 False False"], (
        ended.stderr
    )


def failure(ended: list[Ended]) -> str:
    assert [rank.returncode for rank in ended] == [3], ended
    return ended[0].stdout


def test_a_missing_rank_is_named() -> None:
    environment = RankSlot.on_host(0, 1, 3)[0].environment("127.0.0.1", free_port())
    text = failure(run_each("_starts.py", [environment], "alone", timeout=60))
    assert re.match(
        r"CollectiveError: rank 0 of 3 at 127.0.0.1:\d+ waited 5 s; missing: ranks \[1, 2\]", text
    )


def test_no_master() -> None:
    environment = RankSlot.on_host(0, 1, 2)[1].environment("127.0.0.1", free_port())
    text = failure(run_each("_starts.py", [environment], "alone", timeout=60))
    assert re.match(r"CollectiveError: rank 1 of 2 at 127.0.0.1:\d+ could not reach the others: ", text)
    assert "Check that rank 0 runs" in text


@pytest.mark.parametrize("rank", [0, 1])
def test_a_port_in_use(rank: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environment = RankSlot.on_host(0, 1, 2)[rank].environment("127.0.0.1", port)
        text = failure(run_each("_starts.py", [environment], "alone", timeout=60))
    assert text.startswith(f"CollectiveError: rank {rank} of 2 at 127.0.0.1:{port} ")


def test_an_address_that_does_not_resolve() -> None:
    environment = RankSlot.on_host(0, 1, 2)[1].environment("no-such-host.invalid", 29500)
    text = failure(run_each("_starts.py", [environment], "alone", timeout=60))
    assert text.startswith("CollectiveError: rank 1 of 2 at no-such-host.invalid:29500 could not reach")


def test_contradicting_variables() -> None:
    environment = {**RankSlot.on_host(0, 1, 2)[1].environment("127.0.0.1", 29500), "RANK": "2"}
    text = failure(run_each("_starts.py", [environment], "alone", timeout=60))
    assert text.startswith("InvalidArgument: RANK=2 is not below its world's size, 2")


def two_hosts(*keys: str | None, left: int | None = None) -> list[Ended]:
    """Two hosts of one rank each, with these secrets. See `run_each`."""
    port = free_port()
    slots = [slot for host in range(2) for slot in RankSlot.on_host(host, 2, 1)]
    environments = [slot.environment("127.0.0.1", port) for slot in slots]
    for environment, key in zip(environments, keys, strict=True):
        if key is not None:
            environment["CLOUDTRAIN_RANKS_KEY"] = key
    return run_each("_starts.py", environments, "together", timeout=60, left=left)


WARNING = "the ranks are on several machines and have no common secret"


def test_hosts_with_a_common_secret() -> None:
    ended = two_hosts("the same", "the same")
    assert lines(ended) == ["0 2 0 1 0 2 1 False False", "1 2 0 1 1 2 1 False False"]
    assert WARNING not in ended[0].stderr + ended[1].stderr


def test_hosts_without_a_secret_are_warned() -> None:
    ended = two_hosts(None, None)
    assert lines(ended) == ["0 2 0 1 0 2 1 False False", "1 2 0 1 1 2 1 False False"]
    assert ended[0].stderr.count(WARNING) == 1
    assert "Set CLOUDTRAIN_RANKS_KEY to the same random text on all hosts" in ended[0].stderr
    assert WARNING not in ended[1].stderr


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (
            ("one", "another"),
            r"could not join rank 0 at 127.0.0.1:\d+: it does not know the secret of this job",
        ),
        (("one", None), r"rank 0 has a secret of the ranks, and this rank has none"),
        ((None, "one"), r"this rank has a secret of the ranks, and rank 0 has none"),
    ],
)
def test_hosts_with_different_secrets(keys: tuple[str | None, str | None], error: str) -> None:
    ended = two_hosts(*keys, left=0)
    assert ended[1].returncode == 3
    assert re.match(r"CollectiveError: .*" + error, ended[1].stdout)
    assert "CLOUDTRAIN_RANKS_KEY" in ended[1].stdout
