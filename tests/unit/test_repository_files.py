"""The files that hosts of repositories read: workflows, forms for issues, the citation, the badges."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudtrain._version import __version__

REPOSITORY = Path(__file__).parents[2]
FORMS = sorted((REPOSITORY / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_workflow_runs_what_ci_runs() -> None:
    [job] = read(REPOSITORY / ".github/workflows/ci.yml")["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[-1] == ".ci/run"
    assert os.access(REPOSITORY / commands[-1], os.X_OK)
    assert job["timeout-minutes"] <= 90


@pytest.mark.parametrize(
    "path", [form for form in FORMS if form.stem != "config"], ids=lambda path: path.stem
)
def test_an_issue_form_has_a_label_for_each_field(path: Path) -> None:
    form = read(path)
    assert form["name"] and form["description"]
    assert all(field["id"] and field["attributes"]["label"] for field in form["body"])


def test_the_citation_is_of_this_version() -> None:
    citation = read(REPOSITORY / "CITATION.cff")
    assert citation["version"] == re.match(r"[\d.]+\d", __version__)[0]  # type: ignore[index]
    assert citation["license"] in (REPOSITORY / "setup.cfg").read_text()


def test_the_pictures_are_of_the_diagrams() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "diagrams"))
    drawn = {script["picture_of"](one): script["mark_of"](one) for one in script["diagrams"]()}
    assert len(drawn) == 2 and {*script["FOLDER"].iterdir()} == {*drawn}
    old = [path.name for path, mark in drawn.items() if not path.read_text(encoding="utf-8").endswith(mark)]
    assert old == [], "draw them again: python scripts/diagrams"


def test_contributing_names_what_draws_each_picture() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`docs/\S+\.(?:svg|png)`.*) \| (`.+) \|$", text, re.MULTILINE)
    listed: list[Path] = []
    for names, command in rows:
        for name in re.findall(r"`(docs/[^`]+)`", names):
            found = [*REPOSITORY.glob(name)]
            assert found, f"there is no {name}"
            listed += found
        scripts = re.findall(r"(?:scripts|benchmarks|tests)/[\w/.]+", command)
        assert scripts and all((REPOSITORY / script).exists() for script in scripts)
    pictures = {path for kind in ("svg", "png") for path in (REPOSITORY / "docs").rglob(f"*.{kind}")}
    assert {*listed} == pictures


def test_the_lines_of_other_tools_are_counted() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "lines_to_write"))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert script["table"](page) in page, "count them again: python scripts/lines_to_write"
    assert script["lines_of"]("```console\n$ one\nits output\n```\n\n```python a.py\n\nimport b\n```\n") == 2


def test_the_badges_are_current_and_shown() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "badges"))
    drawn = {path.name: path.read_text(encoding="utf-8") for path in script["FOLDER"].iterdir()}
    assert drawn == script["badges"](), "draw them again: python scripts/badges"
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert {*re.findall(r"\]\(docs/badges/(\S+?)\)", readme)} == {*drawn}
    assert {*script["facts"]()} == {name.removesuffix(".svg") for name in drawn}
