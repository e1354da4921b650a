"""``cloudtrain sagemaker migrate`` changes the import lines of scripts and notebooks, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloudtrain._sdk.imports import change_imports
from cloudtrain.cli import cli
from cloudtrain.errors import InvalidSource

BEFORE = """import os
import sagemaker
import sagemaker as sm  # the SDK
import boto3, sagemaker
import sagemaker.huggingface
import sagemaker.amazon.common as smac
    from sagemaker import get_execution_role
from sagemaker.sklearn.estimator import SKLearn
from sagemaker_containers import entry_point
import sagemaker_datawrangler
sagemaker.Session()  # import sagemaker
"""
AFTER = """import os
from cloudtrain import sagemaker
from cloudtrain import sagemaker as sm  # the SDK
import boto3; from cloudtrain import sagemaker
import cloudtrain.sagemaker.huggingface; from cloudtrain import sagemaker
import cloudtrain.sagemaker.amazon.common as smac
    from cloudtrain.sagemaker import get_execution_role
from cloudtrain.sagemaker.sklearn.estimator import SKLearn
from sagemaker_containers import entry_point
import sagemaker_datawrangler
sagemaker.Session()  # import sagemaker
"""


def _migrate(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["sagemaker", "migrate", *map(str, arguments)])


def test_only_import_lines_change() -> None:
    assert change_imports(BEFORE) == AFTER
    assert change_imports(AFTER) == AFTER


def test_a_script_keeps_its_mode_and_its_line_ends(tmp_path: Path) -> None:
    script, link = tmp_path / "submit.py", tmp_path / "link.py"
    script.write_bytes(BEFORE.replace("\n", "\r\n").encode())
    script.chmod(0o750)
    link.symlink_to(script)
    assert _migrate(link).output == f"{link}: 7 import lines changed\n"
    assert script.read_bytes().decode() == AFTER.replace("\n", "\r\n")
    assert script.stat().st_mode & 0o777 == 0o750
    assert _migrate(script).output == f"{script}: 0 import lines changed\n"


def test_a_notebook_keeps_everything_else(tmp_path: Path) -> None:
    notebook = tmp_path / "train.ipynb"
    cells = [
        {"cell_type": "markdown", "source": ["import sagemaker\n"]},
        {"cell_type": "code", "source": BEFORE.splitlines(keepends=True), "outputs": [{"text": ["é"]}]},
        {"cell_type": "code", "source": "%%writefile train.py\nimport sagemaker\n"},
    ]
    notebook.write_text(json.dumps({"cells": cells, "nbformat": 4}), encoding="utf-8")
    assert "+ from cloudtrain import sagemaker as sm" in _migrate("--dry-run", notebook).output
    assert json.loads(notebook.read_text())["cells"] == cells
    _migrate(notebook)
    cells[1]["source"] = AFTER.splitlines(keepends=True)
    assert json.loads(notebook.read_text(encoding="utf-8")) == {"cells": cells, "nbformat": 4}


@pytest.mark.parametrize("content", ["not json", "[]", '{"worksheets": []}', '{"cells": [{}]}'])
def test_nothing_is_written_if_one_file_cannot_be_read(tmp_path: Path, content: str) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.ipynb"
    good.write_text(BEFORE)
    bad.write_text(content)
    result = _migrate(good, bad)
    assert isinstance(result.exception, InvalidSource)
    assert "bad.ipynb is not a notebook of format 4" in str(result.exception)
    assert good.read_text() == BEFORE
