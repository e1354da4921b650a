"""Checks of a job, before it starts, that run inside its image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engine_daemon import Engine

from cloudtrain.cli import cli
from cloudtrain.platforms import CheckStatus, Finding, job_checks, run_checks
from cloudtrain.submission import prepare

GUARDED = """
import horovod.torch as hvd
import helper

if __name__ == "__main__":
    raise SystemExit("it has trained")
"""

Found = dict[str, Finding]


def find(folder: Path, engine: Engine, files: dict[str, str], **fields: Any) -> Found:
    """The findings on a job whose source has these files. Its script is train.py."""
    source = folder / "source"
    source.mkdir()
    for name, text in files.items():
        (source / name).write_text(text)
    submission = prepare(
        {
            "platform": "container",
            "platform_options": {"engine": engine.url, "pull": "never"},
            "entry_point": "train.py",
            "source_dir": str(source),
            **fields,
        }
    )
    assert submission.archive
    checks = job_checks(submission.platform, submission.job, submission.request, submission.archive.path)
    return dict(run_checks(checks, timeout=100))


def outcomes(found: Found) -> dict[str, str]:
    return {name: str(finding.status) for name, finding in found.items()}


@pytest.mark.parametrize("name", ["engine", "podman"])
def test_a_job_without_problems(
    name: str, request: pytest.FixtureRequest, base_image: str, tmp_path: Path
) -> None:
    engine: Engine = request.getfixturevalue(name)
    files = {"train.py": GUARDED, "helper.py": "import numpy", "requirements.txt": "numpy>1"}
    found = find(tmp_path, engine, files, image_uri=base_image, distribution={"mpi": {}})
    assert set(outcomes(found).values()) == {"ok"}, found
    assert found["script"].what == "the image can import train.py"
    assert found["gpu"].what == "the image has torch without CUDA"
    assert engine.leftovers() == []


def test_every_problem_is_found(engine: Engine, base_image: str, tmp_path: Path) -> None:
    files = {
        "train.py": "import torch, helper, no_such_module\nraise SystemExit('it has trained')",
        "helper.py": "",
        "requirements.txt": "torch==2.4.0\nno-such-distribution\n",
    }
    found = find(
        tmp_path,
        engine,
        files,
        image_uri=base_image,
        instance_type="ml.p4d.24xlarge",
        enable_network_isolation=True,
        output_path=(tmp_path / "out").as_uri(),
    )
    assert outcomes(found) == {
        "request": "ok",
        "source": "ok",
        "engine": "ok",
        "disk": "ok",
        "image": "ok",
        "architecture": "ok",
        "python": "ok",
        "requirements": "failed",
        "imports": "warning",
        "script": "ok",
        "gpu": "warning",
        "places": "warning",
    }
    assert "no-such-distribution, torch==2.4.0 for 2.13.0" in found["requirements"].what
    assert found["imports"].what == "ModuleNotFoundError: No module named 'no_such_module'"
    assert found["script"].what == "the image can compile train.py"
    assert "ml.p4d.24xlarge has GPUs" in found["gpu"].what
    assert engine.leftovers() == []


def test_a_script_that_cannot_be_imported(engine: Engine, base_image: str, tmp_path: Path) -> None:
    files = {
        "train.py": GUARDED.replace("horovod.torch as hvd", "json"),
        "helper.py": "\nimport json\njson.no_such",
    }
    found = find(tmp_path, engine, files, image_uri=base_image)
    assert found["script"].status == CheckStatus.FAILED
    assert found["script"].what.startswith("helper.py:3: AttributeError: ")


def test_the_command_with_a_missing_image(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GUARDED.replace("import helper", ""))
    job = {
        "entry_point": "train.py",
        "source_dir": str(tmp_path),
        "image_uri": "no-such-image:1",
        "platform_options": {"engine": engine.url, "pull": "never"},
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    command = ["check", str(tmp_path / "job.json"), "--platform", "container", "--json"]
    done = CliRunner().invoke(cli, command)
    found = {check["name"]: (check["outcome"], check["what"]) for check in json.loads(done.stdout)}
    assert done.exit_code == 1
    assert found["image"] == ("failed", "no-such-image:1 is not on this machine")
    assert found["imports"][0] == found["architecture"][0] == found["script"][0] == "unknown"
    assert found["engine"][0] == "ok"
