"""``cloudtrain doctor --platform slurm`` where Slurm's commands have no configuration, or are missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_texts import Programs

from cloudtrain.platforms import CheckStatus, Finding, run_checks
from cloudtrain.platforms.slurm import SlurmPlatform
from cloudtrain.spec import TrainingJob

OF_SLURM = ("partitions", "gpus", "preemption", "accounting")


def look(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> dict[str, Finding]:
    monkeypatch.setenv("PATH", programs.environ["PATH"])
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(programs.folder.parent / "home"))
    job = TrainingJob.from_dict({"platform": "slurm"})
    return dict(run_checks(SlurmPlatform().preflight(job, None, ())))


def test_commands_without_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs(tmp_path / "bin")
    (programs.folder / "sbatch").write_text("#!/bin/sh\necho slurm-wlm 22.05.8\n")
    (programs.folder / "sbatch").chmod(0o755)
    for name in ("sinfo", "scontrol"):
        programs.says(name, error=f"{name}: fatal: Could not establish a configuration source", code=1)
    found = look(programs, monkeypatch)
    cluster = found["cluster"]
    assert cluster.status == CheckStatus.FAILED
    assert cluster.what.startswith("Slurm's commands do not find their configuration: sinfo: fatal: ")
    assert "set SLURM_CONF" in cluster.hint
    assert {found[name].status for name in OF_SLURM} == {CheckStatus.UNKNOWN}
    assert found["python"].status == CheckStatus.OK
