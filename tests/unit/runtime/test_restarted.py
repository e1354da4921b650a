"""A container that a kubelet restarts in place runs the script no more often than the job says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudtrain.contract import FailureClass, FailureReport, JobStatus, Paths
from cloudtrain.contract.ending import Ending
from cloudtrain.runtime.restarted import earlier_failure

SCRIPT = """
import os
print("ran with", sorted(name for name in os.environ if name.startswith("PET_")))
raise SystemExit(7)
"""


def test_the_script_runs_once_for_each_retry(tmp_path: Path) -> None:
    """And does not see the variables of another launcher."""
    paths = Paths(tmp_path / "ml")
    paths.make()
    (paths.code / "train.py").write_text(SCRIPT)
    (paths.input_config / "hyperparameters.json").write_text(json.dumps({"sagemaker_program": "train.py"}))
    variables = {
        "CLOUDTRAIN_RETRIES_IN_PLACE": "1",
        "CLOUDTRAIN_DROPPED_VARIABLES": "PET_NNODES,PET_MASTER_ADDR",
        "CLOUDTRAIN_TERMINATION_MESSAGE": str(tmp_path / "termination-log"),
        "PET_NNODES": "2",
        "PET_MASTER_ADDR": "job-node-0-0.job",
        "PET_OWN": "kept",
        "SAGEMAKER_BASE_DIR": str(paths.base),
    }
    ran = []
    for _ in range(4):
        done = subprocess.run(
            [sys.executable, "-m", "cloudtrain.runtime"],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 7
        ran.append("ran with ['PET_OWN']" in done.stdout)
        ending = Ending.from_json((tmp_path / "termination-log").read_text())
        assert ending.failure and ending.failure.exit_code == 7 and ending.status == JobStatus.FAILED
    assert ran == [True, True, False, False]


def test_a_hang_that_is_to_stop_the_job_ends_it_for_good(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.make()
    (paths.code / "train.py").write_text("import time\nprint('ran', flush=True)\ntime.sleep(600)\n")
    (paths.input_config / "hyperparameters.json").write_text(json.dumps({"sagemaker_program": "train.py"}))
    variables = {
        "CLOUDTRAIN_HANG_AFTER": "2",
        "CLOUDTRAIN_ON_HANG": "stop",
        "CLOUDTRAIN_RETRIES_IN_PLACE": "5",
        "CLOUDTRAIN_RESTART_EXIT_CODE": "75",
        "SAGEMAKER_BASE_DIR": str(paths.base),
    }
    runtime = [sys.executable, "-m", "cloudtrain.runtime"]
    ended = [
        subprocess.run(runtime, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    ]
    assert [(done.returncode, "ran" in done.stdout) for done in ended] == [(124, True), (124, False)], ended
    found = earlier_failure(paths, variables)
    assert found and found.status == JobStatus.FAILED
    assert found.failure and found.failure.failure_class == FailureClass.HANG


def test_a_lost_host_does_not_count(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.make()
    environ = {"CLOUDTRAIN_RETRIES_IN_PLACE": "0"}
    assert earlier_failure(paths, environ) is None
    paths.failure_report.write_text(FailureReport.host_lost("b", "gone", 0.0).to_json())
    assert earlier_failure(paths, environ) is None
    paths.failure_report.write_text(FailureReport(FailureClass.USER_ERROR, "no", exit_code=3).to_json())
    assert earlier_failure(paths, {}) is None, "the platform counts"
    found = earlier_failure(paths, environ)
    assert found and found.exit_code == 3
    paths.failure_report.write_text("{")
    assert earlier_failure(paths, environ) is None


@pytest.mark.parametrize(
    ("code", "asked", "again"), [(75, False, True), (75, True, False), (3, False, False), (0, False, False)]
)
def test_a_launcher_starts_again_within_its_pod(tmp_path: Path, code: int, asked: bool, again: bool) -> None:
    """Unless it was asked to end. A signal that arrives meanwhile waits for the next runtime."""
    program = tmp_path / "start.py"
    program.write_text(
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('again', os.environ['OWN'])"
    )
    variables = {
        "CLOUDTRAIN_RESTART_PROGRAM": str(program),
        "CLOUDTRAIN_RESTART_EXIT_CODE": "75",
        "OWN": "value",
    }
    call = (
        "import os; from cloudtrain.runtime import restarted; restarted.PAUSE = 0; "
        f"restarted.start_again({code}, os.environ, lambda: {asked})"
    )
    done = subprocess.run(
        [sys.executable, "-c", call], env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "again value\n" if again else "", "")
