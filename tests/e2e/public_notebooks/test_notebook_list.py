"""The list of public notebooks is well-formed, and the page shows the same. Our own notebooks make the same calls."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cells import without_installs
from notebook_data import MAKERS, NOTEBOOK_MAKERS
from notebook_list import Notebook, Repository, read_notebooks
from notebook_names import outcome, uses
from notebook_run import Outcome, Workplace
from notebook_table import table

OWN = Path(__file__).parent / "own"
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "public-scripts.md"
NOTEBOOKS = read_notebooks()


def test_there_are_at_least_six_frameworks() -> None:
    assert len({notebook.framework for notebook in NOTEBOOKS}) >= 6
    assert len({notebook.name for notebook in NOTEBOOKS}) == len(NOTEBOOKS)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.name)
def test_an_entry_is_complete(notebook: Notebook) -> None:
    repository = notebook.repository
    assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", repository.url)
    assert re.fullmatch(r"[0-9a-f]{40}", repository.commit)
    assert repository.licence in {"Apache-2.0", "MIT"}
    assert {*notebook.objects.values(), *notebook.files.values()} <= MAKERS.keys() | NOTEBOOK_MAKERS.keys()
    assert not {*notebook.trains} & (notebook.fails.keys() | notebook.left_out.keys())
    assert max([*notebook.fails, *notebook.trains, *notebook.left_out]) <= notebook.cells
    assert bool(notebook.shows) == bool(notebook.fails or notebook.left_out)
    assert bool(notebook.not_local) != notebook.local


def test_the_page_shows_the_list() -> None:
    assert table(NOTEBOOKS) in PAGE.read_text(encoding="utf-8")


def test_fetch_prints_commands() -> None:
    command = [sys.executable, str(Path(__file__).parent), "fetch"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert (
        "git -C amazon-sagemaker-examples checkout --quiet 2d519b52c3a2c2361f2b87f0d3de46fd6c0232a5"
        in printed
    )


@pytest.fixture(scope="module")
def workplace() -> Iterator[Workplace]:
    with Workplace() as workplace:
        yield workplace


def _notebook(name: str, cells: int, jobs: int, fails: dict[int, str]) -> Notebook:
    repository = Repository("https://github.com/own/own", "0" * 40, "Apache-2.0", "own")
    return Notebook(name, repository, f"{name}.ipynb", "all", cells, (), jobs, fails=fails)


def _run(workplace: Workplace, notebook: Notebook, folder: Path, *, local: bool) -> Outcome:
    sources = (OWN / f"{notebook.name}.nb").read_text().split("# %%\n")[1:]
    cells = [{"cell_type": "code", "source": source.splitlines(keepends=True)} for source in sources]
    (folder / notebook.path).write_text(json.dumps({"cells": cells}))
    (folder / "train.py").write_text((OWN / "train.py").read_text())
    return workplace.run(notebook, folder / notebook.path, folder, local=local)


@pytest.mark.parametrize("platform", ["sagemaker", "local"])
def test_a_notebook_with_scripts_trains(platform: str, workplace: Workplace, tmp_path: Path) -> None:
    fails = {4: "NotSupported: deploy", 5: "name 'predictor' is not defined"}
    notebook = _notebook("every_framework", 7, 3, fails)
    outcome = _run(workplace, notebook, tmp_path, local=platform == "local")
    assert outcome.differences(notebook, local=platform == "local") == []
    if platform == "local":
        leaves = [re.findall(r"rows: 2 leaves: (\d+)", outcome.printed[cell]) for cell in (3, 6, 7)]
        assert leaves == [["30"], ["5"], ["1"]]


def test_a_notebook_with_images_of_aws_submits(workplace: Workplace, tmp_path: Path) -> None:
    notebook = _notebook("only_aws", 4, 5, {3: "NotSupported: deploy"})
    outcome = _run(workplace, notebook, tmp_path, local=False)
    assert outcome.differences(notebook, local=False) == []


def test_a_cell_that_does_something_else_is_reported() -> None:
    notebook = _notebook("x", 4, 1, {2: "NotSupported"})
    outcome = Outcome({1: None, 2: "NameError: x", 3: "ValueError: y"}, jobs=2)
    assert outcome.differences(notebook, local=False) == [
        "cell 4 was not reached",
        "cell 2: NameError: x",
        "cell 3: ValueError: y",
        "2 jobs were sent to SageMaker; listed: 1",
    ]


def test_a_request_that_is_not_the_sdks_is_reported() -> None:
    def outcome(**fields: object) -> Outcome:
        return Outcome(requests={3: [("CreateTrainingJob", {"HyperParameters": {"a": "1"}, **fields})]})

    assert outcome(RoleArn="a").unlike(outcome(RoleArn="a")) == []
    assert outcome(RoleArn="a").unlike(outcome(RoleArn="b")) == [
        'cell 3: CreateTrainingJob RoleArn: SDK "b", cloudtrain "a"'
    ]
    assert Outcome().unlike(outcome()) == ["cell 3: 0 requests; the SDK sends 1"]


def test_cells_change_no_packages() -> None:
    cell = "import sys\n!{sys.executable} -m pip uninstall -y x\n  !pip install y\nz = 1\n"
    assert without_installs(cell) == "import sys\npass\n  pass\nz = 1\n"


def test_the_names_of_a_notebook_are_those_of_the_sdk() -> None:
    cells = [
        "%matplotlib inline\nimport sagemaker.amazon.common as smac\nfrom sagemaker import image_uris, Model",
        "smac.write(1)\nimage_uris.retrieve('x')\nimport sagemaker\nsagemaker.Sesion()",
        "print 'Python 2'\nfrom sagemaker.nothing import x",
    ]
    found = {use.name: outcome(use.name) for use in uses(cells)}
    assert found == {
        "sagemaker": "works",
        "sagemaker.Model": "refused with a hint",
        "sagemaker.Sesion": "absent",
        "sagemaker.amazon.common": "works",
        "sagemaker.amazon.common.write": "absent",
        "sagemaker.image_uris": "works",
        "sagemaker.image_uris.retrieve": "works",
        "sagemaker.nothing.x": "absent",
    }
