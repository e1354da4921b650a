"""The lines of a batch script for PBS Professional, Torque and Cobalt."""

from __future__ import annotations

from typing import Any

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.pbs import CobaltPlatform, PbsPlatform, TorquePlatform
from cloudtrain.platforms.pbs.directives import short_name
from cloudtrain.spec import Distribution, TrainingJob, convert

PLATFORMS = {kind.name: kind for kind in (PbsPlatform, TorquePlatform, CobaltPlatform)}


def lines(platform: str, options: dict[str, Any], **fields: Any) -> list[str]:
    job = TrainingJob(
        entry_point="train.py", job_name="digits-on-two-hosts", platform_options=options, **fields
    )
    runs = PLATFORMS[platform]()
    return runs.scheduler.lines(job, runs.options_of(job))


def test_pbs_professional() -> None:
    options = {
        "queue": "gpu",
        "account": "ml",
        "cpus": 8,
        "gpus": 4,
        "mem": "64gb",
        "directives": ["-l software=x"],
    }
    assert lines("pbs", options, instance_count=2, max_run=3600, stop_grace=60) == [
        "#PBS -N digits-on-2422",
        "#PBS -j oe",
        "#PBS -o scheduler.log",
        "#PBS -r n",
        "#PBS -q gpu",
        "#PBS -A ml",
        "#PBS -l select=2:ncpus=8:ngpus=4:mem=64gb:mpiprocs=1",
        "#PBS -l place=scatter",
        "#PBS -l walltime=01:03:00",
        "#PBS -l software=x",
    ]
    assert "#PBS -l select=1:ncpus=2+1:ncpus=4" in lines("pbs", {"select": "1:ncpus=2+1:ncpus=4"})


def test_torque() -> None:
    assert lines("torque", {"cpus": 8, "gpus": 2, "gpu_type": "a100"}, instance_count=2) == [
        "#PBS -N digits-on-2422",
        "#PBS -j oe",
        "#PBS -o scheduler.log",
        "#PBS -r n",
        "#PBS -l nodes=2:ppn=8:gpus=2:a100",
    ]
    assert "#PBS -l nodes=n1+n2" in lines("torque", {"nodes": "n1+n2"})


def test_cobalt() -> None:
    options = {
        "queue": "debug-cache-quad",
        "account": "Catalyst",
        "attrs": {"mcdram": "cache", "numa": "quad"},
    }
    assert lines("cobalt", options, instance_count=128) == [
        "#COBALT --jobname digits-on-two-hosts",
        "#COBALT -o scheduler.log -e scheduler.log",
        "#COBALT -n 128",
        "#COBALT -t 0",
        "#COBALT -q debug-cache-quad",
        "#COBALT -A Catalyst",
        "#COBALT --attrs mcdram=cache:numa=quad",
    ]
    assert "#COBALT -t 33" in lines("cobalt", {}, max_run=1740)


@pytest.mark.parametrize(
    ("platform", "options", "why"),
    [
        ("torque", {"select": "2"}, "torque has no such request"),
        ("pbs", {"nodes": "2"}, "pbs has no such request"),
        ("cobalt", {"gpus": 1}, "cobalt has no such request"),
        ("pbs", {"directives": ["-V"]}, "sets -V itself"),
        ("pbs", {"directives": ["#PBS -N mine"]}, "sets -N itself"),
        ("cobalt", {"directives": ["--env A=b"]}, "sets -env itself"),
        ("torque", {"directives": ["gpus=2"]}, "not an option of qsub"),
        ("pbs", {"queue": "a b"}, "queue"),
        ("pbs", {"queue": "gpu\n"}, "queue"),
        ("torque", {"directives": ["-l a\n"]}, "directives"),
        ("pbs", {"directives": ["-l a\n#PBS -V"]}, "directives"),
        ("pbs", {"partition": "main"}, "slurm"),
    ],
)
def test_what_is_refused(platform: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidJob, match=why):
        lines(platform, options)


def test_a_name_begins_with_a_letter() -> None:
    assert short_name("2026-11-22-a") == "j2026-11-22-a"


def test_long_names_differ() -> None:
    names = {short_name(f"a-long-name-of-a-job-{number}") for number in range(50)}
    assert len(names) == 50
    assert all(len(name) <= 15 and name.startswith("a-long-nam") for name in names)


def test_each_rank_has_a_cpu() -> None:
    eight = {"distribution": convert({"processes": {"processes_per_host": 8}}, Distribution)}
    assert "#PBS -l select=1:ncpus=8:mpiprocs=1" in lines("pbs", {}, **eight)
    assert "#PBS -l nodes=1:ppn=8" in lines("torque", {}, **eight)
    assert "#PBS -l select=1:ncpus=4:ngpus=4:mpiprocs=1" in lines("pbs", {"gpus": 4})
    assert "#PBS -l nodes=1:ppn=2:gpus=4" in lines("torque", {"gpus": 4, "cpus": 2})
    assert "#PBS -l select=1:mpiprocs=1" in lines("pbs", {})
