"""``cloudtrain doctor --platform slurm`` on a real Slurm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Configuration
from slurm_fixtures import SlurmOf

from cloudtrain.platforms import CheckStatus, Finding, HostOffer, run_checks
from cloudtrain.platforms.slurm import SlurmPlatform
from cloudtrain.spec import TrainingJob
from cloudtrain.submission import prepare


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(tmp_path / "config.yaml"))
    (tmp_path / "config.yaml").touch()
    (tmp_path / "train.py").write_text("print(1)\n")
    return tmp_path


def test_partitions_are_offered_with_their_idle_gpus(slurm_of: SlurmOf, home: Path) -> None:
    cluster = slurm_of(
        Configuration(gpu_type="a100", partitions=("main Default=YES", "small Nodes=127.0.0.2"))
    )
    expected = [HostOffer("main", "", "a100", 2, 2, 4), HostOffer("small", "", "a100", 2, 1, 2)]
    assert sorted(SlurmPlatform().offers(), key=lambda offer: offer.place) == expected
    cluster.set_down("127.0.0.2")
    assert SlurmPlatform().offers() == [HostOffer("main", "", "a100", 2, 1, 2)]


def look(**fields: Any) -> dict[str, Finding]:
    job = TrainingJob.from_dict({"platform": "slurm", **fields})
    return dict(run_checks(SlurmPlatform().preflight(job, None, ())))


def test_a_cluster_in_sentences(slurm_of: SlurmOf, home: Path) -> None:
    slurm_of(
        Configuration(
            gpu_type="a100", partitions=("main Default=YES MaxTime=60", "small MaxTime=10 Nodes=127.0.0.2")
        )
    )
    found = look()
    for name, finding in found.items():
        assert finding.status == CheckStatus.OK, (name, finding)
    assert re.fullmatch(r"slurm-wlm 2.* on this machine", found["cluster"].what)
    assert found["partitions"].what == "main has 2 nodes, at most 1:00:00"
    assert found["gpus"].what == "GPUs of a node: 2 a100"
    assert found["preemption"].what == "no job is preempted (PreemptMode=OFF)"
    assert "no accounting" in found["accounting"].what
    assert str(home / "home") in found["folder"].what
    assert found["clock"].what == "the clocks agree"

    def problem(check: str, **fields: Any) -> str:
        finding = look(**fields)[check]
        assert finding.status == CheckStatus.FAILED, finding
        return f"{finding.what}. {finding.hint}"

    def options(**values: Any) -> dict[str, Any]:
        return {"platform_options": values}

    assert (
        problem("partitions", **options(partition="mian"))
        == "there is no partition mian. Did you mean 'main'?"
    )
    assert "the job wants 2 nodes, and the partition small has 1" in problem(
        "partitions", instance_count=2, **options(partition="small")
    )
    assert look(**options(partition="small,main"))["partitions"].what.startswith("small has 1 node,")
    assert "type h100. Did you mean 'a100'?" in problem("gpus", **options(gpus=1, gpu_type="h100"))
    assert "a node has 2 GPUs, and the job wants 8 on each" in problem("gpus", **options(gpus=8))
    assert "cannot be written" in problem("folder", **options(folder="/proc/nothing"))


def test_a_job_is_shown_to_slurm(slurm_of: SlurmOf, home: Path) -> None:
    slurm_of(Configuration())
    fields = {"entry_point": str(home / "train.py"), "platform": "slurm", "job_name": "looked-at"}

    def found(**own: Any) -> dict[str, Finding]:
        prepared = prepare({**fields, **own})
        checks = prepared.platform.preflight(prepared.job, prepared.request, ())  # type: ignore[attr-defined]
        return dict(run_checks(checks))

    finding = found()["submission"]
    assert finding.status == CheckStatus.OK
    assert "to start at" in finding.what
    finding = found(max_run=7200)["partitions"]
    assert finding.status == CheckStatus.FAILED
    assert finding.what.startswith("the partition main ends jobs after 1:00:00, and the job asks for 12")
    finding = found(platform_options={"constraint": "nothing-has-it"})["submission"]
    assert finding.status == CheckStatus.FAILED
    assert finding.what == "Slurm does not take the job: Invalid feature specification"
    assert list(SlurmPlatform().list()) == []


def test_a_cluster_that_is_not_there(slurm_of: SlurmOf, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = slurm_of(Configuration())
    (home / "bin").mkdir()
    for name in ("sh", "dirname", "mktemp", "rm", "df", "tail", "stat", "date"):
        (home / "bin" / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(home / "bin"))
    found = look()
    assert found["cluster"].status == CheckStatus.FAILED
    assert found["cluster"].what == "there is no sbatch on this machine"
    assert found["python"].status == CheckStatus.WARNING
    assert cluster.conf
