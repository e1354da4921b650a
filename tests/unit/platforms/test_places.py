"""Jobs at the same time on given machines: each has its own machines and GPUs, or the error names what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract.host import GPU_SHARE, gpus_of_host
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms import Places, get_platform


def places(platform: str, jobs: int, per_host: int | None = None, **fields: Any) -> list[tuple[Any, str]]:
    """The hosts, or the GPUs of containers, and the share of each of some jobs at the same time."""
    found = get_platform(platform)
    assert isinstance(found, Places)
    placed = [found.placed(fields, number, jobs, per_host) for number in range(jobs)]
    options = [one.get("platform_options", {}) for one in placed]
    shares = [one.get("environment", {}).get(GPU_SHARE, "") for one in placed]
    return [(one.get("hosts", one.get("gpus")), share) for one, share in zip(options, shares, strict=True)]


def hosts(text: Any, **more: Any) -> dict[str, Any]:
    return {"platform_options": {"hosts": text}, **more}


def test_jobs_on_hosts_have_their_own_hosts() -> None:
    assert places("hosts", 1, **hosts("a,b")) == [("a,b", "")]
    assert places("hosts", 2, **hosts("a:4,b:4,c:4,d:4,e:4")) == [(["a:4", "b:4"], ""), (["c:4", "d:4"], "")]
    assert places("hosts", 2, **hosts("a,b,c,d", instance_count=2, spare_hosts=0)) == [
        (["a", "b"], ""),
        (["c", "d"], ""),
    ]
    assert places("hosts", 2, **hosts("a,b,c,d", spare_hosts=1)) == [(["a", "b"], ""), (["c", "d"], "")]
    shared = places("hosts", 4, 2, **hosts("a:8,b:8"))
    assert shared == [(["a:4"], "0/2"), (["b:4"], "0/2"), (["a:4"], "1/2"), (["b:4"], "1/2")]


def test_a_hostfile_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "hostfile").write_text("a slots=2\nb slots=2\n")
    options = {"hostfile": str(tmp_path / "hostfile")}
    assert places("hosts", 1, platform_options=options) == [(["a:2", "b:2"], "")]


@pytest.mark.parametrize(
    ("jobs", "per_host", "fields", "problem"),
    [
        (
            3,
            None,
            hosts("a,b"),
            "parallel: 3 trials at the same time need 3 hosts, and platform_options.hosts",
        ),
        (
            2,
            None,
            hosts("a,b,c", instance_count=2),
            "parallel: 2 trials of 2 hosts at the same time need 4 ho",
        ),
        (
            5,
            2,
            hosts("a,b"),
            "parallel: 5 trials at the same time, and 2 hosts with 2 trials_per_host take 4",
        ),
        (4, 4, hosts("a:2"), "trials_per_host: 4 trials do not fit into the 2 slots of a"),
        (2, 2, hosts("a,b", instance_count=2), "trials_per_host: 2, but each trial needs 2 whole hosts"),
        (2, None, hosts("localhost,127.0.0.1"), "parallel: localhost and 127.0.0.1 are both this machine"),
        (2, 2, {"platform_options": {"hosts": "a", "master_port": 7000}}, "master_port: 7000 is one port"),
    ],
)
def test_too_few_hosts(jobs: int, per_host: int | None, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidJob) as error:
        places("hosts", jobs, per_host, **fields)
    assert problem in str(error.value)


def test_jobs_on_this_machine_divide_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert places("local", 1) == [(None, "")]
    assert places("local", 2) == [(None, "0/2"), (None, "1/2")]
    assert places("local", 2, 8) == [(None, "0/8"), (None, "1/8")]
    with pytest.raises(InvalidJob, match="parallel: 5 trials at the same time, and this machine has 4 GPUs"):
        places("local", 5)
    assert places("local", 5, environment={"CUDA_VISIBLE_DEVICES": ""})[4] == (None, "4/5")
    with pytest.raises(InvalidJob, match="this machine, the only host, takes 2"):
        places("local", 3, 2)


def test_containers_divide_the_gpus_that_they_name() -> None:
    named = {"platform_options": {"gpus": ["0", "1", "2"]}}
    assert places("container", 3, **named) == [(["0"], ""), (["1"], ""), (["2"], "")]
    assert places("container", 2) == [(None, ""), (None, "")]
    with pytest.raises(InvalidJob, match="parallel: 4 trials at the same time, and this machine has 3 GPUs"):
        places("container", 4, **named)
    with pytest.raises(InvalidJob, match="parallel: trials of 2 hosts would use the same GPUs"):
        places("container", 2, instance_count=2, **named)


@pytest.mark.parametrize(
    ("share", "number", "of", "expected"),
    [("1/2", 0, 1, "2,3"), ("1/2", 1, 2, "3"), ("3/4", 0, 1, "3"), ("5/8", 0, 1, "1"), ("1/0", 0, 1, "1"),
     ("x", 1, 2, "2,3"), ("", 0, 1, None)],
)  # fmt: skip
def test_hosts_of_a_job_divide_its_share(share: str, number: int, of: int, expected: str | None) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", GPU_SHARE: share}
    assert gpus_of_host(number, of, environ).get("CUDA_VISIBLE_DEVICES") == expected
