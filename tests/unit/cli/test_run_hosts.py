"""``cloudtrain run`` on other machines: which hosts take part, and the job that it submits."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.cli._run_hosts import job_fields, spread
from cloudtrain.cli._run_options import parse
from cloudtrain.cli._run_program import rank_program
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.hosts.host_list import parse_hosts

SPREAD = [
    ("a:4,b:4", 8, 0, "a:4,b:4"),
    ("a:4,b:4", 4, 0, "a:4"),
    ("a:4,b:4", 2, 0, "a:2"),
    ("a:4,b:4", 0, 0, "a:4,b:4"),
    ("a,b", 4, 0, "a:2,b:2"),
    ("a:4,b:4,c:4", 4, 2, "a:2,b:2"),
    ("a,b", 0, 1, "a:1,b:1"),
]


@pytest.mark.parametrize(("hosts", "ranks", "per_host", "used"), SPREAD)
def test_ranks_fill_the_slots_in_order(hosts: str, ranks: int, per_host: int, used: str) -> None:
    assert ",".join(map(str, spread(parse_hosts(hosts), ranks, per_host))) == used


def test_oversubscribed_hosts_have_equally_many_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    used = spread(parse_hosts("a:2,b:2"), 8, 0, oversubscribe=True)
    assert ",".join(map(str, used)) == "a:4,b:4"
    line = "-np 8 -H a:2,b:2 --oversubscribe --send python train.py"
    options = parse(line.split())
    fields = job_fields(parse_hosts(options.hosts), options, rank_program(options.program))
    assert fields["platform_options"]["hosts"] == ["a:4", "b:4"]


def test_what_does_not_fit() -> None:
    with pytest.raises(InvalidJob, match="-np 9 is more than the 8 slots of the hosts"):
        spread(parse_hosts("a:4,b:4"), 9, 0)
    with pytest.raises(InvalidJob, match="-np 6 would be 4 on a, 2 on b") as caught:
        spread(parse_hosts("a:4,b:4"), 6, 0)
    assert "Use -np 8" in caught.value.hint


def test_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    line = "-np 4 -H a:2,b:2 -p 2222 -x A=b --mpi -mca btl self python train.py --epochs 5"
    options = parse(line.split())
    fields = job_fields(parse_hosts(options.hosts), options, rank_program(options.program))
    assert fields == {
        "platform": "hosts",
        "platform_options": {"hosts": ["a:2", "b:2"], "ssh": "ssh -p 2222"},
        "entry_point": "train.py",
        "arguments": ["--epochs", "5"],
        "environment": {"A": "b"},
        "distribution": {"mpi": {"custom_mpi_options": "--mca btl self"}},
    }
    options = parse(["-np", "2", "-H", "a:2", "python", "-m", "json.tool"])
    with pytest.raises(InvalidJob, match="-m: other machines"):
        job_fields(parse_hosts(options.hosts), options, rank_program(options.program))
