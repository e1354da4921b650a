"""A missing module is explained by what the source has; only published packages belong in requirements.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from failing_scripts import report_on

import cloudtrain
from cloudtrain.contract import FailureClass
from cloudtrain.runtime.diagnose.hints.table import JobFacts

ALIAS = Path(cloudtrain.__file__).parent / "alias"
SOURCE = {
    "train.py": "",
    "helpers/__init__.py": "",
    "helpers/text.py": "",
    "src/lib.py": "",
    "src/inner/tools.py": "",
    "yaml_files/a.yaml": "",
    "simplejson.py": "",
    "email/mine.py": "",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in SOURCE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import lib", "The source has lib in the folder src, which Python does not search."),
        ("import tools", "The source has tools in the folder src/inner, which Python does not search."),
        ("import helpers.nosuch", "The source has helpers, but not helpers.nosuch."),
        (
            "import email.mine",
            "The source has email/mine.py, but Python imports another email: an installed package",
        ),
        ("import simplejson.encoder", "The source has a file simplejson.py (in the folder .), which hides"),
        ("from .helpers import x", "Write from helpers import x instead of from .helpers import x"),
        ("import smdistributed.dataparallel.torch.distributed", "only in AWS's images"),
        ("import sagemaker_containers.beta.framework", "part of AWS's images"),
        ("from sagemaker_training import environment", "part of AWS's images"),
        ("import horovod.run", "submit with --horovod"),
        ("from horovod.runner import run", "submit with --horovod"),
        ("from horovod import run", "submit with --horovod"),
        ("import horovod; horovod.run(print)", "submit with --horovod"),
        ("import horovod.spark.torch", "horovod.spark needs the real Horovod"),
        (
            "from yaml_files import gone",
            "If yaml_files is a package of yours, pack the folder that contains yaml_files",
        ),
        ("import horovod.data", "The horovod of this job does not have horovod.data"),
    ],
)
def test_horovod_is_not_advised_for_requirements_txt(
    source: Path, monkeypatch: pytest.MonkeyPatch, code: str, expected: str
) -> None:
    monkeypatch.syspath_prepend(ALIAS)  # as in a job
    report = report_on(code, path=source, facts=JobFacts(code=source))
    assert expected in report.hint
    assert "requirements.txt" not in report.hint
    assert report.failure_class in (FailureClass.IMPORT_ERROR, FailureClass.USER_ERROR)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import dotenv_nosuch", "If it is a module of yours, pack its folder"),
        ("import skimage", "Add scikit-image to the requirements.txt"),
        (
            "import numpy.nosuch",
            "See the documentation of numpy.nosuch for what to put into requirements.txt.",
        ),
    ],
)
def test_a_published_package(source: Path, code: str, expected: str) -> None:
    hint = report_on(code, path=source, facts=JobFacts(code=source)).hint
    assert expected in hint
    assert "requirements.txt" in hint


def test_a_name_that_an_installed_package_does_not_have() -> None:
    hint = report_on("from scipy import nosuch").hint
    assert hint.startswith("The installed scipy has no nosuch. Check the name")


@pytest.mark.parametrize("code", ["from helpers import nosuch", "from helpers.text import nosuch"])
def test_a_name_that_an_own_module_does_not_have(source: Path, code: str) -> None:
    assert report_on(code, path=source, facts=JobFacts(code=source)).hint == ""


def test_an_installed_package_is_not_reported_as_missing(source: Path) -> None:
    """Python names a submodule only if it has found the package."""
    hint = report_on("import yaml.nosuch", path=source, facts=JobFacts(code=source)).hint
    assert hint.startswith("The yaml of this job has no yaml.nosuch: another release of it may have")


def test_without_the_source_no_module_is_called_foreign() -> None:
    assert "If it is a module of yours" in report_on("import email.mine").hint


@pytest.mark.parametrize("code", ["import smdistributed_mine", "import sagemaker_containers2", "import bs44"])
def test_a_name_that_only_begins_like_a_known_one(code: str) -> None:
    assert report_on(code).hint.startswith("The job does not have ")


def test_the_search_of_a_large_source_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    for number in range(50):
        (tmp_path / f"data-{number}").mkdir()
    hint = report_on("import nosuch", path=tmp_path, facts=JobFacts(code=tmp_path)).hint
    assert hint.startswith("The job does not have nosuch.")
