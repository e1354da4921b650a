"""The list of public notebooks: which notebook, what it needs, and what each of its cells must show.

Each file in `list/` describes one repository at one commit. The notebooks themselves are not in this repository.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "list"


@dataclass(frozen=True)
class Repository:
    """One repository at one commit."""

    url: str
    commit: str
    licence: str
    folder: str
    """Its name in the folder of checkouts."""

    def fetch(self) -> list[str]:
        """The commands that check it out, without its history."""
        folder = shlex.quote(self.folder)
        return [
            f"git init --quiet {folder}",
            f"git -C {folder} fetch --quiet --depth 1 {self.url} {self.commit}",
            f"git -C {folder} checkout --quiet {self.commit}",
        ]


@dataclass(frozen=True)
class Notebook:
    """One notebook with what its cells need and must show."""

    name: str
    repository: Repository
    path: str
    framework: str
    cells: int
    """The number of its code cells."""
    trains: tuple[int, ...]
    """The cells that start jobs. They succeed on SageMaker, as moto simulates it."""
    jobs: int
    """The number of jobs that they send to SageMaker."""
    folder: str = ""
    """The folder with its script, where the repository has moved the notebook away from it."""
    local: bool = False
    """Whether they succeed on `local`, too."""
    not_local: str = ""
    """Why they are not run on `local`."""
    python: str = "torch"
    """The interpreter of the jobs on `local`: a key of `pythons.yaml` of the public scripts."""
    objects: dict[str, str] = field(default_factory=dict)
    """Sample data: the URI that the notebook reads, and the name in `notebook_data.py` of what is there instead."""
    files: dict[str, str] = field(default_factory=dict)
    """The same for folders next to the notebook."""
    fails: dict[int, str] = field(default_factory=dict)
    """Cells that fail, with a part of the error."""
    left_out: dict[int, str] = field(default_factory=dict)
    """Cells that are not run, and why."""
    shows: str = ""
    changed: str = "the import lines"
    environment: dict[str, str] = field(default_factory=dict)
    timeout: int = 600


def read_notebooks() -> list[Notebook]:
    """All notebooks of the list."""
    return [notebook for path in sorted(FOLDER.glob("*.yaml")) for notebook in _read(path)]


def _read(path: Path) -> list[Notebook]:
    about: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    repository = Repository(about["url"], about["commit"], about["licence"], path.stem)
    return [_notebook(repository, entry) for entry in about["notebooks"]]


def _notebook(repository: Repository, entry: dict[str, Any]) -> Notebook:
    return Notebook(repository=repository, **{**entry, "trains": tuple(entry["trains"])})
