"""A site with a scheduler that is not installed: its commands answer as recorded, all else is real."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator, Job

FOLDER = Path(__file__).parent
PBS = ("qsub", "qselect", "qstat", "qrerun", "qdel")
COMMANDS = {
    "pbs": (FOLDER / "recorded_pbs.py", (*PBS, "pbsdsh")),
    "cobalt": (FOLDER / "recorded_pbs.py", (*PBS, "aprun")),
    "lsf": (FOLDER / "recorded_lsf.py", ("bsub", "bjobs", "bhist", "bkill", "brequeue", "blaunch")),
}

SCRIPT = """
import os, sys, time
from cloudtrain import environment

names = ("RANK", "WORLD_SIZE", "SM_CURRENT_HOST", "A_TOKEN", "FROM_PROLOGUE", "CUDA_VISIBLE_DEVICES")
print("seen", *(os.environ.get(name) for name in names), flush=True)
foreign = ("PBS_", "COBALT_", "LSB_")
print("foreign", [name for name in os.environ if name.startswith(foreign)], flush=True)
if "--sleep" in sys.argv and os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
    time.sleep(600)
(environment.model_dir() / os.environ["RANK"]).write_text("a part")
"""


@dataclass
class Site:
    platform: str
    state: Path
    folder: Path

    def submit(self, name: str, *arguments: str, wait: bool = True, **options: Any) -> Job:
        return Estimator(
            str(self.folder / "train.py"),
            platform=self.platform,
            arguments=list(arguments),
            instance_count=2,
            distribution={"processes": {"processes_per_host": 1}},
            environment={"A_TOKEN": "hf_s3cret"},
            platform_options={"prologue": ["export FROM_PROLOGUE=yes"], "python": sys.executable, **options},
            disable_output_compression=True,
        ).fit(job_name=name, wait=wait)

    def set(self, name: str, text: str = "") -> None:
        """Change how the commands answer."""
        (self.state / name).write_text(text)

    @property
    def job(self) -> dict[str, Any]:
        """The job as the scheduler has it."""
        found: dict[str, Any] = json.loads((self.state / "job").read_text())
        return found

    def lose_job(self) -> None:
        """The job of the scheduler has ended, and left no outcome."""
        self.set("job", json.dumps({**self.job, "pid": 2**22}))

    @property
    def asked(self) -> list[str]:
        """The directives of the last job."""
        return (self.state / "asked").read_text().splitlines()


def make_site(platform: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    if os.geteuid():
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "these tests need root"
        pytest.skip("needs root: each node has its own host name")
    commands, state = folder / "bin", folder / "state"
    commands.mkdir()
    state.mkdir()
    program, names = COMMANDS[platform]
    for name in names:
        (commands / name).symlink_to(program)
    (folder / "train.py").write_text(SCRIPT)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(folder / "home"))
    monkeypatch.setenv("RECORDED", platform)
    monkeypatch.setenv("RECORDED_STATE", str(state))
    return Site(platform, state, folder)


def wait_for_ranks(job: Job) -> None:
    deadline = time.monotonic() + 60
    while job.logs().count("seen") < 2:
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.1)
