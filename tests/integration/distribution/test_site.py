"""The site is built from the pages and docstrings, and no link of it is broken."""

from __future__ import annotations

import inspect
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import cloudtrain

REPOSITORY = Path(__file__).parents[3]
PACKAGES = (
    *("checkpoint", "cost", "distributed", "environment", "errors"),
    *("history", "observe", "sweep", "testing", "tuning"),
)
"""Those whose public names are all in the reference."""
BUILD = [sys.executable, str(REPOSITORY / "scripts/build_site")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([*BUILD, str(folder)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr  # a broken link, too, is an error
    return folder


def test_every_page_of_the_docs_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    pages = {page.relative_to(REPOSITORY).with_suffix("") for page in (REPOSITORY / "docs").rglob("*.md")}
    assert [page for page in sorted(pages) if page.name != "README" and f'href="{page}/"' not in home] == []


def test_every_link_leads_to_a_file(site: Path) -> None:
    """Also a link to a file that mkdocs does not know, such as a test: it gives no warning."""
    broken = [
        f"{page.relative_to(site)}: {link}"
        for page in site.rglob("index.html")
        for link in re.findall(r' (?:href|src)="?([^"#?> ]+)', page.read_text(encoding="utf-8"))
        if ":" not in link and not (page.parent / unquote(link)).exists()
    ]
    assert broken == []


def test_docstrings_are_in_the_reference_and_in_the_search(site: Path) -> None:
    page = (site / "docs/api/submit-jobs/index.html").read_text(encoding="utf-8")
    assert 'id="cloudtrain.estimator.Estimator.fit"' in page
    found = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    assert "docs/api/submit-jobs/#cloudtrain.job.Job.wait" in {entry["location"] for entry in found}


@pytest.fixture(scope="module")
def reference(site: Path) -> set[str]:
    """The names of the API reference, with their modules."""
    pages = (page.read_text(encoding="utf-8") for page in (site / "docs/api").rglob("*.html"))
    return {name for page in pages for name in re.findall(r'id="(cloudtrain\.[\w.]+)"', page)}


def test_every_name_of_the_package_is_in_the_reference(reference: set[str]) -> None:
    found = {name.rpartition(".")[2] for name in reference}
    modules = {name for name in cloudtrain.__all__ if inspect.ismodule(getattr(cloudtrain, name))}
    assert set(cloudtrain.__all__) - modules - found == {"__version__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_of_a_package_is_in_the_reference(package: str, reference: set[str]) -> None:
    """Those of tests/unit/test_public_api.py, also of its public modules, such as all collectives of Keras."""
    public = runpy.run_path(str(REPOSITORY / "tests/unit/test_public_api.py"))["PUBLIC"]
    whole = f"cloudtrain.{package}"
    names = {
        f"{module}.{name}"
        for module, listed in public.items()
        if module == whole or module.startswith(f"{whole}.")
        for name in listed.split()
    }
    assert names
    assert names - reference == set()


def test_every_name_that_a_page_imports_is_in_the_reference(reference: set[str]) -> None:
    """Names with an underscore, and modules of `cloudtrain.sagemaker`, which have the SDK's names, are left out."""
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    imported = re.compile(r"^from (cloudtrain\.[\w.]+) import ([\w, ]+)$", re.MULTILINE)
    names = {
        f"{module}.{name.split(' as ')[0].strip()}"
        for page in pages
        for module, listed in imported.findall(page.read_text(encoding="utf-8"))
        for name in listed.split(",")
        if not module.startswith("cloudtrain.sagemaker")
    }
    assert len(names) > 20
    assert names - reference == set()


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("find-hyperparameters", "sweep.Sweep.fit"),
        ("train-with-pytorch", "distributed.torch.allreduce"),
        ("train-with-pytorch", "optimizers.torch.LARS"),
        ("survive-lost-ranks", "distributed.torch.elastic.run"),
        ("what-frameworks-share", "distributed.shard_indices"),
        ("train-with-tensorflow", "distributed.tensorflow.DistributedGradientTape"),
        ("train-with-keras", "distributed.keras.DistributedOptimizer"),
        ("train-with-tf.keras", "distributed.tensorflow.keras.cuda_built"),
        ("train-with-mxnet", "distributed.mxnet.DistributedTrainer"),
        ("train-on-numpy-arrays", "distributed.numpy.allreduce"),
        ("checkpoints", "checkpoint.Checkpointer.save"),
        ("in-a-script", "environment.job_name"),
        ("in-a-script", "observe.report_step"),
    ],
)
def test_names_that_are_imported_on_first_use_are_in_the_reference(site: Path, title: str, name: str) -> None:
    page = (site / "docs/api" / title / "index.html").read_text(encoding="utf-8")
    assert f'id="cloudtrain.{name}"' in page


def test_a_page_loads_nothing_from_other_servers(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    assert 'src="http' not in home and 'href="https://fonts' not in home
    # the theme's script would load Mermaid from another server, and without an answer, nothing of it works
    assert [
        page for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text(encoding="utf-8")
    ] == []
    assert 'src="docs/pictures/how-a-job-runs.svg"' in home


def test_a_broken_link_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stage = tmp_path / "pages"
    stage.mkdir()
    (stage / "README.md").write_text("# Home\n\n[Here](#home), [there](missing.md)\n")
    build = runpy.run_path(BUILD[1])["build"]
    assert build(stage, [{"Home": "README.md"}], tmp_path / "site") != 0
    assert "contains a link 'missing.md'" in capfd.readouterr().err


def test_a_wrong_command_line_prints_the_usage() -> None:
    done = subprocess.run([*BUILD, "--help"], capture_output=True, text=True)
    assert (done.returncode, "scripts/build_site FOLDER" in done.stderr) == (1, True)
