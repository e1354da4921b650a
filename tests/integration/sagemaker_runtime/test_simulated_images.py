"""The runtime in images that contain little more than a Python, or not even that."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from simulated import SimulatedSageMaker
from simulated_container import Image

from cloudtrain import TrainingFailed

SCRIPT = """
import importlib.util, sys
from cloudtrain import environment

assert not any(map(importlib.util.find_spec, ("boto3", "msgspec", "torch", "numpy")))
print("trains on", *sys.version_info[:2], "as", environment.rank(), flush=True)
"""


def bare(python: str, folder: Path) -> str:
    """The PATH of an image that only contains ``python``, with its standard library."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin")


def python39() -> str:
    """A Python 3.9, the oldest version that the runtime supports."""
    found = [shutil.which("python3.9"), *Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9")]
    for python in filter(None, found):
        if not subprocess.run([python, "-c", ""], stderr=subprocess.DEVNULL, check=False).returncode:
            return str(python)
    if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
        pytest.fail("there is no Python 3.9")
    pytest.skip("there is no Python 3.9")


@pytest.mark.parametrize("version", ["3.9", "this"])
def test_python_is_enough(sagemaker: SimulatedSageMaker, tmp_path: Path, version: str) -> None:
    python = python39() if version == "3.9" else sys.executable
    sagemaker.instances.image = Image(bare(python, tmp_path / "python"))
    log = sagemaker.estimator(SCRIPT, instance_count=2, distribution={"processes": {}}).fit(logs=False).logs()
    assert log.count("trains on 3 9 as" if version == "3.9" else f"trains on 3 {sys.version_info[1]} as") == 2


@pytest.mark.parametrize("pythons", [[], ["python3", "python"]], ids=["no Python", "old ones"])
def test_an_image_without_a_suitable_python_fails_with_a_message(
    sagemaker: SimulatedSageMaker, tmp_path: Path, pythons: list[str]
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "tee").symlink_to(shutil.which("tee") or "")
    for name in pythons:  # each exits as a Python older than 3.9 does when asked for its version
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    sagemaker.instances.image = Image(str(programs))
    with pytest.raises(TrainingFailed, match=r"this image has no Python 3\.9 or newer"):
        sagemaker.estimator(SCRIPT).fit(logs=False)


def test_an_older_python_on_the_path_is_skipped(sagemaker: SimulatedSageMaker, tmp_path: Path) -> None:
    programs = Path(bare(sys.executable, tmp_path / "python"))
    (programs / "python3").unlink()
    (programs / "python3").write_text("#!/bin/sh\nexit 1\n")
    (programs / "python3").chmod(0o755)
    sagemaker.instances.image = Image(str(programs))
    assert "trains on" in sagemaker.estimator(SCRIPT).fit(logs=False).logs()


def test_the_image_s_own_python_path_is_kept(sagemaker: SimulatedSageMaker) -> None:
    sagemaker.instances.image = Image(environment={"PYTHONPATH": "/somewhere"})
    script = "import os; print('path', os.environ['PYTHONPATH'])"
    said = re.findall(r"path (.*)", sagemaker.estimator(script).fit(logs=False).logs())
    code, *_, runtime, theirs = said[0].split(":")
    assert (code, theirs) == ("/opt/ml/code", "/somewhere")
    assert runtime.startswith("/var/tmp/cloudtrain-")
