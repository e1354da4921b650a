"""docs/reference/proof.md agrees with the markers ``proof`` of the tests, and each claim of the README has its proof.

    pytestmark = pytest.mark.proof("Slurm", real="22.05.8 with slurmdbd")

is what the row "Slurm" reads under "tried on": ``real``, ``imitated`` or ``text``.
``CLOUDTRAIN_WRITE_VIEWS=1`` writes these cells.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from documents import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "proof.md"
KINDS = {"real": "the software itself", "imitated": "imitated", "text": "by text"}


def proofs() -> dict[str, tuple[str, Path]]:
    """By row of the page: the cell "tried on", and the module that has the marker."""
    found: dict[str, tuple[str, Path]] = {}
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.proof(" in text and path != Path(__file__):
            for call in ast.walk(ast.parse(text)):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.proof":
                    [row], [kind] = call.args, call.keywords
                    name, what = ast.literal_eval(row), ast.literal_eval(kind.value)
                    assert name not in found, f"{name!r} has two markers: {found[name][1]}, {path}"
                    found[name] = (f"{KINDS[str(kind.arg)]}: {what}".removesuffix(": "), path)
    return found


def test_the_table_shows_what_the_markers_of_the_tests_state() -> None:
    markers, lines = proofs(), PAGE.read_text(encoding="utf-8").splitlines()
    rows = {
        cells[1].strip(): number for number, line in enumerate(lines) if len(cells := line.split("|")) > 4
    }
    assert set(markers) - set(rows) == set(), "rows that the page lacks"
    wrong = {}
    for name, (tried, _) in markers.items():
        cells = lines[rows[name]].split("|")
        if cells[2] != f" {tried} ":
            wrong[name] = (cells[2], tried)
            cells[2] = f" {tried} "
            lines[rows[name]] = "|".join(cells)
    if wrong and "CLOUDTRAIN_WRITE_VIEWS" in os.environ:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert wrong == {}


def test_each_row_links_to_the_tests_that_have_its_marker() -> None:
    markers = proofs()
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        name = line.split("|")[1].strip() if line.startswith("| ") else ""
        tests = [
            (PAGE.parent / link).resolve() for link in re.findall(r"\]\((\.\./\.\./tests/[^)]*)\)", line)
        ]
        if name in markers:
            module = markers[name][1]
            assert any(place == module or place in module.parents for place in tests), name
        elif name and tests:
            assert "**not run**" in line, f"{name!r} has tests, and none has its marker"


def test_each_claim_of_the_readme_links_to_a_test_or_a_benchmark() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    claims = re.findall(r"^- \*\*(.+?)\*\*(.*?)(?=^- |\n\n)", text, re.MULTILINE | re.DOTALL)
    assert len(claims) >= 5
    sections = text.split("\n## ")[2:-1]  # those between "Install" and "Learn more"
    assert len(sections) >= 4
    for title, claim in (*claims, *(section.split("\n", 1) for section in sections)):
        links = re.findall(r"\]\(((?:tests|benchmarks)/[^)#]*)", claim)
        assert links, f"nothing shows what README.md says in {title!r}"
        assert all((REPOSITORY / link).exists() for link in links), title
