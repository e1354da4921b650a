"""cloudtrain's steps in the ``Pipeline`` of the SageMaker SDK itself, versions 2 and 3, against the SDK's own steps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[[Path], str]

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "tests" / "data" / "sdk_pipelines"
PACKAGES = {"v2": "sagemaker==2.257.7", "v3": "sagemaker==3.27.0"}
OWN_FIELDS = {
    "HyperParameters",
    "InputDataConfig",
    "AlgorithmSpecification",
    "Environment",
    "OutputDataConfig",
}
"""Fields that version 3 fills in its own way, with its own program in the container."""


@pytest.fixture(scope="module", params=PACKAGES)
def sdk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Run]:
    """The version, and a function that runs ``pipelines.py`` there on a file.

    ``CLOUDTRAIN_SDK_V2`` and ``_V3`` name ready interpreters.
    """
    version = request.param
    folder = tmp_path_factory.mktemp(version)
    python = os.environ.get(f"CLOUDTRAIN_SDK_{version.upper()}") or _environment(folder, PACKAGES[version])
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text("print(1)\n")
    environ = {**os.environ, "CLOUDTRAIN_HOME": str(folder / "home")}
    if version == "v2":
        environ["CLOUDTRAIN_RUNTIME"] = "toolkit"
    script = REPOSITORY / "tests" / "parity" / "pipelines.py"

    def run(file: Path) -> str:
        command = [python, str(script), version, str(file)]
        done = subprocess.run(
            command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, timeout=900, check=True
        )
        return done.stdout

    return version, run


def _environment(folder: Path, package: str) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=300)
    python = str(folder / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", package, "moto>=5", str(REPOSITORY)]
    subprocess.run(install, check=True, timeout=1500)
    return python


def _normalised(value: Any) -> Any:
    return json.loads(re.sub(r"s3://[\w/.-]*sourcedir\.tar\.gz", "SOURCE", json.dumps(value)))


@pytest.mark.timeout(2400)
def test_the_steps_are_those_of_the_sdk(sdk: tuple[str, Run]) -> None:
    version, run = sdk
    recorded = json.loads((DATA / f"{version}.json").read_text(encoding="utf-8"))
    found = json.loads(run(DATA / f"{version}.json"))
    assert set(found) == {case["name"] for case in recorded["cases"]}
    for name, pair in found.items():
        theirs, ours = _normalised(pair["sdk"]), _normalised(pair["cloudtrain"])
        if version == "v3":
            theirs, ours = (
                {**step, "Arguments": _without(step["Arguments"], OWN_FIELDS)} for step in (theirs, ours)
            )
        assert ours == theirs, name


@pytest.mark.timeout(2400)
def test_the_program_of_the_guide_runs(sdk: tuple[str, Run], tmp_path: Path) -> None:
    version, run = sdk
    page = (REPOSITORY / "docs" / "guides" / "sagemaker-pipelines.md").read_text(encoding="utf-8")
    program = page.split("```python pipeline.py\n")[1].split("```")[0].replace('"train.py"', '"src/train.py"')
    if version == "v3":
        program = program.replace("sagemaker.workflow.parameters", "sagemaker.core.workflow.parameters")
        program = program.replace("sagemaker.workflow.pipeline", "sagemaker.mlops.workflow.pipeline")
    program += "\nassert len(pipeline.describe()['PipelineArn']) > 0\n"
    (tmp_path / "pipeline.py").write_text(program)
    run(tmp_path / "pipeline.py")


def _without(values: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
