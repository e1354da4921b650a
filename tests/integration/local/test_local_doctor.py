"""The checks of the local platform."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from cloudtrain.platforms import CheckStatus, Finding, Request, get_platform, job_checks, run_checks
from cloudtrain.platforms.checks import ok
from cloudtrain.platforms.common.machine_checks import check_bucket
from cloudtrain.platforms.local.doctor import check_imports, check_python, check_requirements, check_torch
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import open_store
from cloudtrain.submission import prepare

PYTHON_2 = """
import sys
sys.version_info = (2, 7, 18)
sys.modules["importlib.metadata"] = None
program = sys.argv[2]
sys.argv = ["-c", sys.argv[3]]
exec(program)
"""
"""Runs ``-c PROGRAM ARGUMENT`` as Python 2 would, which lacks importlib.metadata."""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("import json\n")
    return path


def find(script: Path, **fields: object) -> dict[str, Finding]:
    submission = prepare({"entry_point": str(script), **fields})
    archive = submission.archive.path if submission.archive else None
    return dict(run_checks(job_checks(submission.platform, submission.job, submission.request, archive)))


def interpreter(folder: Path, script: str) -> str:
    """A program in place of a Python."""
    path = folder / "python-else"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_this_python_is_suitable() -> None:
    found = check_python(sys.executable)
    assert found.status == CheckStatus.OK
    assert "Python 3." in found.what


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ("exit 3", "does not run Python code: exit code 3"),
        ("echo one >&2; echo two >&2; exit 127", "does not run Python code: two"),
        ("echo no JSON", "is not a Python interpreter"),
        ("exit 0", "is not a Python interpreter"),
        (f"exec {sys.executable} -c '{PYTHON_2}' \"$@\"", "is Python 2.7.18"),
        ("echo '[[3, 8, 1], [], null]'", "Python 3.8.1"),
    ],
)
def test_an_unsuitable_python(tmp_path: Path, answers: str, words: str) -> None:
    found = check_python(interpreter(tmp_path, answers))
    assert found.status == CheckStatus.FAILED
    assert found.what.endswith(words) and "\n" not in found.what and found.hint


def test_the_interpreter_of_the_job_is_checked(script: Path, tmp_path: Path) -> None:
    python = interpreter(tmp_path, f'exec {sys.executable} -I -S "$@"')  # without cloudtrain
    found = find(script, platform_options={"python": python})
    version = ".".join(map(str, sys.version_info[:3]))
    assert found["python"] == Finding(CheckStatus.OK, f"{python} is Python {version}")


def test_torch_is_checked_if_the_script_imports_it(script: Path, tmp_path: Path) -> None:
    assert "torch" not in find(script)
    script.write_text("import torch\n")
    assert find(script)["torch"].status == CheckStatus.OK
    without = check_torch(interpreter(tmp_path, "echo '[[3, 12, 1], [], null]'"))
    assert without.status == CheckStatus.WARNING


def test_torchrun_needs_torch(script: Path, tmp_path: Path) -> None:
    torchrun: dict[str, object] = {"distribution": {"torch_distributed": {}}}
    assert find(script, **torchrun)["torch"].status == CheckStatus.OK
    torchrun["platform_options"] = {"python": interpreter(tmp_path, "echo '[[3, 12, 1], [], null]'")}
    found = find(script, **torchrun)["torch"]
    assert found.status == CheckStatus.FAILED
    assert found.what.startswith("torch_distributed needs torch")
    (tmp_path / "requirements.txt").write_text("lightning")
    torchrun |= {"entry_point": "train.py", "source_dir": str(tmp_path)}
    assert find(script, **torchrun)["torch"].status == CheckStatus.WARNING


def test_imports() -> None:
    assert check_imports(sys.executable, ["msgspec"]).status == CheckStatus.OK
    found = check_imports(sys.executable, ["msgspec", "no_such_module"])
    assert found.status == CheckStatus.WARNING
    assert found.what.endswith(" has no_such_module")
    assert "pip install" not in found.hint, "a stranger can publish a package of the name of a user's module"


def test_a_missing_framework_is_installed_by_the_command_of_the_hint(tmp_path: Path) -> None:
    python = interpreter(tmp_path, 'echo \'[[3, 12, 1], ["numpy", "keras"], null]\'')
    found = check_imports(python, ["numpy", "keras"])
    assert found.status == CheckStatus.WARNING
    assert found.hint.endswith(f"{python} -m pip install numpy keras")


def test_what_the_job_installs() -> None:
    """Only what is missing: options, other systems' packages, and satisfied lines are not."""
    text = "# a\n-r more.txt\nmsgspec>=0.1  # b\nno-such-dist==1 # c\nmsgspec>999\nx; sys_platform == 'win32'\n./d\n"
    found = check_requirements(sys.executable, text)
    assert found == ok(f"the job installs no-such-dist==1, msgspec>999, which {sys.executable} lacks")
    assert check_requirements(sys.executable, "msgspec") == ok(
        f"{sys.executable} has what requirements.txt names"
    )


def test_mpirun_is_checked_if_the_job_needs_it(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "mpirun" not in find(script)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find(script, distribution={"mpi": {}})["mpirun"].status == CheckStatus.FAILED
    mpirun = tmp_path / "mpirun"
    mpirun.touch(mode=0o755)
    assert find(script, distribution={"mpi": {}})["mpirun"] == Finding(CheckStatus.OK, str(mpirun))


def test_inputs_and_buckets(script: Path, s3: str) -> None:
    open_store(f"s3://{s3}/train").write("part-0", b"1")
    found = find(
        script,
        inputs={"train": f"s3://{s3}/train", "test": f"s3://{s3}/test"},
        output_path=f"s3://{s3}/out",
        checkpoint_s3_uri="s3://no-such-bucket-here/run",
    )
    outcomes = {name: finding.status for name, finding in found.items()}
    assert outcomes["input train"] == outcomes[f"bucket {s3}"] == CheckStatus.OK
    assert outcomes["input test"] == outcomes["bucket no-such-bucket-here"] == CheckStatus.FAILED


def test_checking_a_bucket_leaves_no_object(s3: str) -> None:
    assert check_bucket(f"s3://{s3}/out").status == CheckStatus.OK
    assert list(open_store(f"s3://{s3}").list()) == []


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", "/proc/cloudtrain")
    checks = job_checks(get_platform("local"), TrainingJob(), None, None)
    found = dict(run_checks({"disk": checks["disk"]}))["disk"]
    assert found.status == CheckStatus.FAILED
    assert "CLOUDTRAIN_HOME" in found.hint


def test_a_platform_without_the_ability_has_the_checks_of_the_source(tmp_path: Path) -> None:
    from cloudtrain.testing import FakePlatform

    checks = job_checks(FakePlatform(), TrainingJob(), Request("fake", "job", {}), None)
    assert list(checks) == ["request"]


def test_a_use_of_opt_ml_is_found_where_jobs_do_not_have_it(script: Path) -> None:
    assert find(script)["/opt/ml"].status == CheckStatus.OK
    without = {"platform_options": {"mount_opt_ml": False}}
    assert find(script, **without)["/opt/ml"].status == CheckStatus.OK
    script.write_text("import json\njson.dump({}, open('/opt/ml/model/model.json', 'w'))\n")
    found = find(script, **without)["/opt/ml"]
    assert found.status == CheckStatus.WARNING
    assert found.what.startswith(
        "train.py:2 uses /opt/ml/model/model.json, but jobs do not have /opt/ml here"
    )
    assert "SM_MODEL_DIR" in found.hint and "--platform container" in found.hint


@pytest.mark.parametrize("field", ["inputs", "output_path", "checkpoint_s3_uri"])
def test_a_job_that_needs_files_of_the_machines_opt_ml_sees_them(script: Path, field: str) -> None:
    uri = "file:///opt/ml/shared"
    found = find(script, **{field: {"train": uri} if field == "inputs" else uri})["/opt/ml"]
    assert "the job needs /opt/ml/shared" in found.what


def test_an_interpreter_that_starts_slowly_is_not_a_wrong_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print('x')")
    slow = interpreter(tmp_path, f'sleep 0.5; exec {sys.executable} "$@"')
    monkeypatch.setattr("cloudtrain.platforms.local.doctor.SLOW_SECONDS", 0.4)
    found = check_python(slow)
    assert (found.status, "s to start" in found.what) == (CheckStatus.WARNING, True)
    monkeypatch.setattr("cloudtrain.platforms.local.doctor.START_SECONDS", 0.1)
    found = check_python(slow)
    assert (found.status, "is slow: it has not started" in found.what) == (CheckStatus.UNKNOWN, True)
    job = prepare({"entry_point": str(tmp_path / "train.py"), "platform_options": {"python": slow}}).start()
    assert job.wait(240).status == "Completed"
