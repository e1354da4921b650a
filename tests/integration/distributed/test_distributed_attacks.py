"""Another user of the machine attacks running ranks: nothing of his is executed, and the ranks finish their work.

The attacks run as ``nobody`` if the tests run as root, otherwise as this user.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ranks import Ended, run_each, run_ranks

from cloudtrain.contract import RankSlot
from cloudtrain.runtime.ports import free_port


@dataclass
class Victim:
    """Two ranks that train."""

    folder: Path
    port: int
    ended: Future[list[Ended]]

    def attack(self, way: str, *arguments: object) -> dict[str, Any]:
        """Run an attack to its end. Returns what it achieved."""
        target = str(self.folder / "executed")
        [attacker] = run_each("_attacker.py", [{}], str(self.port), way, target, *map(str, arguments))
        assert attacker.returncode == 0, attacker.stderr
        found: dict[str, Any] = json.loads(attacker.stdout)
        return found

    def go(self) -> None:
        (self.folder / "go").touch()

    def results(self) -> list[dict[str, Any]]:
        """Let the ranks finish. Returns what each of them exchanged."""
        self.go()
        (self.folder / "stop").touch()
        ended = self.ended.result(60)
        assert [rank.returncode for rank in ended] == [0, 0], [rank.stderr for rank in ended]
        return [json.loads(rank.stdout) for rank in ended]


@contextmanager
def training(folder: Path) -> Iterator[Victim]:
    port = free_port()
    environments = [slot.environment("127.0.0.1", port) for slot in RankSlot.on_host(0, 1, 2)]
    with ThreadPoolExecutor(1) as executor:
        ended = executor.submit(run_each, "_attacked.py", environments, str(folder))
        end = time.monotonic() + 60
        while not all((folder / f"ready-{rank}").exists() for rank in range(2)):
            assert time.monotonic() < end and not ended.done(), ended.result(1)
            time.sleep(0.02)
        try:
            yield Victim(folder, port, ended)
        finally:
            for name in ("go", "stop"):
                (folder / name).touch()


def test_who_reads_the_store_cannot_join_and_has_no_pickle_executed(tmp_path: Path) -> None:
    with training(tmp_path) as victim:
        attacked = victim.attack("forge")
        results = victim.results()
    assert attacked["joined"] == 0, "an attacker spoke with rank 0"
    assert not (tmp_path / "executed").exists(), "a rank executed the code of another user"
    for found in results:
        assert (found["settings"], found["ranks"], found["large"]) == ({"lr": 0.5}, [0, 1], 1 << 20)
    secret = (Path(os.environ["CLOUDTRAIN_HOME"]) / "ranks-key").read_text()
    assert secret not in json.dumps(attacked["published"])


def test_objects_with_another_key_are_refused_by_every_call(tmp_path: Path) -> None:
    ended = run_ranks("_forged.py", 2, str(tmp_path / "executed"), timeout=60)
    assert [rank.returncode for rank in ended] == [0, 0], [rank.stderr for rank in ended]
    errors: dict[str, str] = json.loads(ended[0].stdout)
    assert list(errors) == [
        "broadcast_object",
        "large broadcast_object",
        "allgather_object",
        "broadcast_object of arrays",
        "allgather_object of arrays",
    ]
    for error in errors.values():
        assert "refused, because no rank of this job sent it as it arrived" in error
    assert errors["allgather_object"].startswith("allgather_object of all from rank 1: ")
    assert list(tmp_path.iterdir()) == []


FLOODS = ("idle", "garbage", "half")


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_floods_of_connections_cost_next_to_nothing(tmp_path: Path, count: int) -> None:
    seconds = 3 if count == 1000 else 60
    with training(tmp_path) as victim:
        victim.go()
        connected = [victim.attack(way, count // len(FLOODS), seconds)["connected"] for way in FLOODS]
        results = victim.results()
    assert sum(connected) > 150, "the attack did not reach rank 0"
    for found in results:
        assert found["steps"] > 10
        assert found["MB"] < 40
        assert found["descriptors"] < 80
