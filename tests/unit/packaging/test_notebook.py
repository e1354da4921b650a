"""A notebook becomes a script on request, and no part of it is skipped silently."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cloudtrain.cli import cli
from cloudtrain.errors import InvalidSource
from cloudtrain.packaging.notebook import convert_notebook

if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
    pytest.importorskip("nbconvert")
    pytest.importorskip("IPython")


def cell(source: str, kind: str = "code", **metadata: Any) -> dict[str, Any]:
    outputs = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "metadata": metadata, "source": source, **outputs}


def write_notebook(path: Path, *cells: dict[str, Any], language: str = "python") -> Path:
    kernel = {"kernelspec": {"name": "k", "display_name": "k", "language": language}}
    path.write_text(json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}))
    return path


def test_a_notebook_with_harmless_magics_runs_as_a_script(tmp_path: Path) -> None:
    output = {"output_type": "stream", "name": "stdout", "text": "OUTPUT OF THE NOTEBOOK"}
    printing = {**cell("%%time\nfor i in range(2):\n    %time print('step', i)"), "outputs": [output]}
    path = write_notebook(
        tmp_path / "train.ipynb",
        cell("# A title\nand text", "markdown"),
        cell("%matplotlib inline\n%load_ext autoreload\n%autoreload 2\nimport sys\n100 % 7\nsys?"),
        cell("if True:\n    %config InlineBackend.figure_format = 'retina'\ntext = '''\n%not a magic\n'''"),
        printing,
        cell("!pip install nosuch", tags=["remove_cell"]),
        cell("print(sys.argv[1:], text.strip())"),
    )
    script = convert_notebook(path)
    text = script.read_text()
    assert script == tmp_path / "train.py"
    assert text.startswith("# Converted from train.ipynb by cloudtrain")
    assert "# # A title" in text
    assert "OUTPUT" not in text
    assert "get_ipython" not in text
    done = subprocess.run([sys.executable, script, "--lr", "1"], capture_output=True, text=True, check=False)
    assert done.stdout == "step 0\nstep 1\n['--lr', '1'] %not a magic\n", done.stderr
    assert convert_notebook(path) == script  # replaces its own script


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "x = 1\n!pip install torch",
            r"train.ipynb, cell 2: !pip install torch works only.*\n  .* requirements.txt",
        ),
        (
            "%pip install torch",
            r"cell 2: %pip works only in a notebook\n  Name the packages in requirements.txt",
        ),
        ("!ls data", r"cell 2: !ls data works only in a notebook\n  Use subprocess.run"),
        ("files = !ls", r"cell 2: !ls works only in a notebook"),
        ("%cd data", r"cell 2: %cd works only in a notebook\n  Write it in plain Python.*remove_cell"),
        ("%%bash\nls", r"cell 2: %%bash works only in a notebook"),
        ("%%time\n!ls", r"cell 2: !ls works only"),
        ("def f(:", r"cell 2, line 1: "),
    ],
)
def test_features_that_only_a_notebook_has_are_refused(tmp_path: Path, source: str, message: str) -> None:
    path = write_notebook(tmp_path / "train.ipynb", cell("print()"), cell(source))
    with pytest.raises(InvalidSource, match=message):
        convert_notebook(path)
    assert not (tmp_path / "train.py").exists()


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSource, match="is a notebook in R, not in Python"):
        convert_notebook(write_notebook(tmp_path / "r.ipynb", cell("x <- 1"), language="R"))
    (tmp_path / "text.ipynb").write_text("hello")
    with pytest.raises(InvalidSource, match="is not a notebook that nbformat can read"):
        convert_notebook(tmp_path / "text.ipynb")
    (tmp_path / "own.py").write_text("print('mine')")
    with pytest.raises(InvalidSource, match="there is such a file already"):
        convert_notebook(write_notebook(tmp_path / "own.ipynb", cell("1")))
    assert (tmp_path / "own.py").read_text() == "print('mine')"


def test_a_damaged_or_missing_notebook_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSource, match=r"there is no notebook .*gone\.ipynb"):
        convert_notebook(tmp_path / "gone.ipynb")
    (tmp_path / "folder.ipynb").mkdir()
    with pytest.raises(InvalidSource, match="there is no notebook"):
        convert_notebook(tmp_path / "folder.ipynb")
    path = tmp_path / "julia.ipynb"
    metadata = {"kernelspec": None, "language_info": {"name": "julia"}}
    path.write_text(json.dumps({"cells": [], "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}))
    with pytest.raises(InvalidSource, match="is a notebook in julia, not in Python"):
        convert_notebook(path)


@pytest.mark.parametrize("character", ["\f", "\x1c", "\u2028"])
def test_the_text_of_strings_stays(tmp_path: Path, character: str) -> None:
    """Also where it has characters at which `str.splitlines` splits, and Python does not."""
    code = f"%%time\ntext = 'a{character}b'\n%matplotlib inline\nprint(ascii(text))"
    script = convert_notebook(write_notebook(tmp_path / "train.ipynb", cell(code)))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout == f"{f'a{character}b'!a}\n", done.stderr


def test_submit_converts_on_request_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    write_notebook(tmp_path / "src" / "train.ipynb", cell("print(1)"))
    command = ["submit", "src/train.ipynb", "--source-dir", "src", "--dry-run"]
    refused = CliRunner().invoke(cli, command)
    assert isinstance(refused.exception, InvalidSource)
    assert "--convert-notebook" in refused.exception.hint
    converted = CliRunner().invoke(cli, [*command, "--convert-notebook"])
    assert converted.exit_code == 0, converted.exception
    assert json.loads(converted.stdout)["hyperparameters"]["sagemaker_program"] == '"train.py"'
