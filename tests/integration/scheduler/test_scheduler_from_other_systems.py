"""A client on macOS or Windows, as far as they can be played here, submits to a cluster of Linux machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from systems.played import run_on

SCRIPT = """
import os, time
print("begins", os.environ["SM_CURRENT_HOST"], flush=True)
if os.environ["CLOUDTRAIN_JOB_NAME"] == "second":
    time.sleep(600)
open(os.environ["SM_MODEL_DIR"] + "/model", "w").close()
"""


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_jobs_on_a_cluster(system: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    seen = json.loads(
        run_on(system, Path(__file__).with_name("client_program.py"), str(tmp_path), cwd=tmp_path)
    )
    assert seen["system"] == system
    assert seen["statuses"] == ["Pending", "Completed", "Stopped"]
    assert sorted(line.split()[-1] for line in seen["lines"] if "begins" in line) == ["node-1", "node-2"]
    assert seen["model"].startswith(f"file://{tmp_path}/jobs/first/output/model")
    assert sorted(seen["jobs"]) == ["first", "second"]
