"""A host that was lost is there again: it becomes a spare one, and the others keep their places."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from supervised_programs import REQUEST

from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import FolderHosts
from cloudtrain.runtime.supervisor.places import came_back, moved
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.runtime.supervisor.restarts import decide
from cloudtrain.runtime.supervisor.spares import ASK_SECONDS, LOST_SECONDS, SpareHosts


class Job:
    """The places of a job with the hosts a, b, ..., of which some are spare."""

    def __init__(self, folder: Path, names: str, **request: Any) -> None:
        self._request = {**REQUEST, "settings": {}, **request}
        (folder / "request.json").write_text(json.dumps(self._request))
        self.hosts = FolderHosts(JobFolder(folder), [*names])  # type: ignore[abstract]
        self.record = JobRecord(JobStatus.RUNNING, 1.0)
        self._begin()

    def _begin(self) -> None:
        self.hosts.assign(self.record.left_out, self.record.dropped)
        self.record = replace(self.record, hosts=(*self.hosts.names,), spares=(*self.hosts.spares,))

    @property
    def places(self) -> tuple[str, str]:
        return "".join(self.hosts.names), "".join(self.hosts.spares)

    def lose(self, name: str) -> str:
        """The next attempt begins without a host. Returns what the log says about the places."""
        decision = decide(
            self.record,
            FailureReport.host_lost(name, "gone", 1.0),
            None,
            self._request,
            self.hosts.spares,
        )
        assert decision.restarts
        self.record = decision.budget.spend(decision.record)
        self.hosts.assign(self.record.left_out, self.record.dropped)
        self.record, words = moved(self.record, self.hosts.names)
        self._begin()
        return f"{decision.budget.describe(self.record, self._request)}: {words}"

    def return_(self, name: str) -> None:
        self.hosts._add_spare(name)
        self.record = came_back(self.record, name, self.hosts.spares)


def test_a_host_that_comes_back_takes_the_next_place(tmp_path: Path) -> None:
    job = Job(tmp_path, "abc", spare_hosts=1)
    assert job.lose("a") == "spare host 1 of 1: c takes the place of a"
    assert job.places == ("cb", "")
    job.return_("a")
    assert job.places == ("cb", "a")
    assert (job.record.left_out, job.record.spares) == ((), ("a",))
    assert job.lose("b") == "spare host 2: a takes the place of b"
    assert job.places == ("ca", "")
    job.return_("b")
    assert job.lose("a") == "spare host 3: b takes the place of a"
    assert job.places == ("cb", "")


def test_a_spare_that_comes_back_is_spare_again(tmp_path: Path) -> None:
    job = Job(tmp_path, "abcd", spare_hosts=2)
    job.return_("c")  # it has waited, and was restarted
    assert job.places == ("ab", "cd")
    job.lose("b")
    assert job.places == ("ac", "d")
    job.return_("b")
    assert job.places == ("ac", "db")


def test_a_smaller_world_grows_again_at_the_next_restart(tmp_path: Path) -> None:
    job = Job(tmp_path, "abcd", min_instance_count=2)
    assert job.lose("b") == "with fewer hosts: without b, a, c, d are left"
    job.lose("c")
    assert job.places == ("ad", "")
    job.return_("b")
    assert job.places == ("ad", "b")
    assert job.record.dropped == ("c",)
    # b waits: it takes the place of the next host that is lost
    assert job.lose("d") == "spare host 1: b takes the place of d".replace("1", "3")
    assert job.places == ("ab", "")
    job.return_("c")
    job.return_("d")
    assert job.places == ("ab", "cd")
    assert job.record.dropped == ()
    # both are back: one takes a place, and the other makes the world larger
    words = job.lose("a")
    assert words.endswith("c takes the place of a; d has a place again")
    assert job.places == ("cbd", "")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Answers:
    """Hosts of which ``there`` can be reached."""

    def __init__(self) -> None:
        self.waiting: dict[str, Any] = {}
        self.asked: list[str] = []
        self.there: Sequence[str] = ()

    def rejoin(self, name: str) -> bool:
        self.asked.append(name)
        return name in self.there


@pytest.mark.parametrize("times", [1, 2])
def test_each_host_may_come_back_once(times: int) -> None:
    clock, hosts = Clock(), Answers()
    spares = SpareHosts(hosts, lambda _text: None, clock)  # type: ignore[arg-type]
    spares.expect(["a"], LOST_SECONDS)
    assert spares.come_back() == []
    clock.now = LOST_SECONDS
    assert spares.come_back() == spares.come_back() == []
    assert hosts.asked == ["a"], "a host that is away is not asked all the time"
    hosts.there = ["a"]
    clock.now += ASK_SECONDS
    assert spares.come_back() == ["a"]
    if times == 2:
        spares.expect(["a", "b"], LOST_SECONDS)
        clock.now += 10 * ASK_SECONDS
        hosts.there = ["a", "b"]
        assert spares.come_back() == ["b"], "a was lost twice"
    clock.now += 10 * ASK_SECONDS
    assert spares.come_back() == []
