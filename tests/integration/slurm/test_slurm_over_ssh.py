"""Jobs from a laptop: through ssh to a login node, without a shared file system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from login_node import ALIAS, LoginNode
from slurm_cluster import SlurmCluster

from cloudtrain.platforms.batch.control import log_out

SCRIPT = """
import os, sys, time
from cloudtrain import environment

print("begins", os.environ["SM_CURRENT_HOST"], os.environ.get("A_TOKEN"), flush=True)
for number in range(20):
    print("line", number, flush=True)
if "sleep" in sys.argv:
    time.sleep(300)
(environment.model_dir() / "model.bin").write_bytes(bytes(range(256)) * 1000)
"""


@dataclass
class Laptop:
    """A client whose home is not on the cluster."""

    folder: Path
    node: LoginNode
    scratch: Path

    def run(self, *arguments: str, code: int = 0) -> str:
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "CLOUDTRAIN"))
        }
        environ |= {
            "HOME": str(self.folder),
            "CLOUDTRAIN_HOME": str(self.folder / "state"),
            "CLOUDTRAIN_CONFIG": str(self.folder / "config.yaml"),
            "PATH": f"{self.node.folder}/bin:{Path(sys.executable).parent}:/usr/bin:/bin",
        }
        done = subprocess.run(
            [sys.executable, "-m", "cloudtrain", *arguments],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def laptop(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laptop]:
    with tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as name:
        folder = Path(name)
        scratch = folder / "scratch"
        scratch.mkdir()
        node = LoginNode(
            folder / "node",
            noise=f"export HOME={folder}/there SCRATCH={scratch}; echo Welcome",
            environ={"SLURM_CONF": str(slurm.conf)},
        )
        home = folder / "laptop"
        home.mkdir()
        (home / "train.py").write_text(SCRIPT)
        (home / "config.yaml").write_text(
            f"platform: slurm\nplatform_options: {{login: {ALIAS}, folder: $SCRATCH/ct}}\n"
        )
        found = Laptop(home, node, scratch)
        monkeypatch.setenv("CLOUDTRAIN_HOME", str(home / "state"))
        monkeypatch.setenv("PATH", f"{node.folder}/bin:{os.environ['PATH']}")
        yield found
        log_out(ALIAS)
        node.stop()


def test_a_job_from_the_laptop(laptop: Laptop) -> None:
    said = laptop.run(
        "submit",
        "train.py",
        "--name",
        "first",
        "--set",
        "environment.A_TOKEN=hf_s3cret",
        "--processes-per-host",
        "2",
    )
    assert said.count("line 19") == 2
    described = json.loads(laptop.run("describe", "first", "--json"))
    assert described["status"] == "Completed"
    assert described["place"] == f"kraken:{laptop.scratch}/ct/jobs/slurm/first"
    assert laptop.run("download", "first", "--to", "out").strip().endswith("model.tar.gz")
    assert laptop.node.logins == 1
