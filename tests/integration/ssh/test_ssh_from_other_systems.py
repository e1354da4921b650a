"""A client on macOS or Windows, as far as they can be played here, submits to a cluster by ssh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from systems.played import run_on


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_paths_are_those_of_the_cluster(system: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    program = Path(__file__).with_name("laptop_program.py")
    seen = json.loads(run_on(system, program, str(script), cwd=tmp_path))
    assert seen["system"] == system
    assert "#SBATCH --output=/scratch/me/ct/jobs/slurm/far/supervisor.log\n" in seen["script"]
    assert seen["script"].splitlines()[-1].endswith(" /scratch/me/ct/jobs/slurm/far")
    shares = any("ControlMaster" in argument for argument in seen["command"])
    assert shares == (system != "win32")
    assert "-oStrictHostKeyChecking=yes" in seen["command"]
