"""The plugin that decides which pages CI runs: what a page runs decides, and no sentence between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pages
import pytest

PAGE = """# A page

See [the demo](scripts/demo), and `cloudtrain list`.

```yaml
entry_point: examples/jax/train.py
```

```python train.py
import cloudtrain.environment
```

```console
$ cloudtrain submit train.py
[rank 0] done
```
"""


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    monkeypatch.setattr(pages, "REPOSITORY", tmp_path)
    monkeypatch.setattr(pages, "named_files", lambda text: set())

    def of(text: str) -> str:
        (tmp_path / "page.md").write_text(text)
        return pages.page_hash("page.md")

    return of


@pytest.mark.parametrize(
    ("old", "new"),
    [("A page", "Another page"), ("See [the", "Look at [the"), ("examples/jax", "examples/xgboost")],
)
def test_text_that_does_not_run_changes_nothing(old: str, new: str, digest: Callable[[str], str]) -> None:
    assert digest(PAGE.replace(old, new)) == digest(PAGE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("environment", "observe"),
        ("train.py\nimport", "other.py\nimport"),
        ("submit", "plan"),
        ("0] done", "1] done"),
        ("```yaml", "```yaml job.yaml"),
    ],
)
def test_what_runs_its_output_and_saved_files_count(old: str, new: str, digest: Callable[[str], str]) -> None:
    assert digest(PAGE.replace(old, new)) != digest(PAGE)


def test_the_files_are_those_that_the_blocks_name(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    found = pages.named_files(pages.followed_text(tmp_path / "page.md"))
    assert {path.relative_to(pages.REPOSITORY).as_posix() for path in found} == {
        "cloudtrain/cli/submit.py",
        "cloudtrain/environment/__init__.py",
    }


def test_all_text_of_a_program_counts(tmp_path: Path) -> None:
    (tmp_path / "start.py").write_text("# examples/jax\n")
    assert pages.followed_text(tmp_path / "start.py") == "# examples/jax\n"


def test_a_module_offers_its_options_and_public_functions() -> None:
    code = """
@click.option("--name", help="see --not-this")
def submit(name: str, *, gpus: int = 1) -> None:
    print(f"--set {name}")

def _private(secret): ...
"""
    assert pages.offered(code) == "--name\nsubmit(name: str, *, gpus: int=1)"
    assert pages.offered(code.replace("print", "log").replace("secret", "other")) == pages.offered(code)
    for old, new in (('"--name"', '"--title"'), ("gpus: int", "gpus: float"), ("= 1", "= 2")):
        assert pages.offered(code.replace(old, new)) != pages.offered(code)


def test_what_all_tests_use_offers_something() -> None:
    submit, estimator = (pages.offered(path.read_text()) for path in pages.USED_BY_ALL)
    assert "--instance-count" in submit and "fit(self, " in estimator
