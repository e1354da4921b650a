"""The list of public scripts: which script, how it is launched, and what it must print and leave.

Each file in `list/` describes one repository at one commit. The scripts themselves are not in this repository.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "list"
PYTHONS = FOLDER.parent / "pythons.yaml"


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
class Script:
    """One script with its launch and its expected outcome."""

    name: str
    repository: Repository
    command: str
    """The launch, from the root of the checkout: ``cloudtrain submit SCRIPT`` or ``cloudtrain run``.

    ``s3://data/NAME`` is synthetic data of `make_data.py`.
    """
    python: str = "torch"
    """The interpreter that it needs: a key of `pythons.yaml`."""
    home: str = ""
    """Data that the script looks for in the home folder."""
    exit_status: int = 0
    error: str = ""
    """A part of the message of a script that fails."""
    prints: tuple[str, ...] = ()
    """Regular expressions. The output must match each."""
    model: tuple[str, ...] = ()
    """Files in the downloaded model."""
    output: tuple[str, ...] = ()
    """Files in the downloaded output data."""
    not_run: str = ""
    """Why it was not run for the table. The rest of the entry is then what we expect."""
    changed: str = "nothing"
    """The changes around the script: an option, a package, data. The script itself never changes."""
    timeout: int = 300

    @property
    def command_line(self) -> list[str]:
        """The command line, without `cloudtrain`."""
        return shlex.split(self.command)[1:]

    @property
    def path(self) -> str:
        """The script in the checkout."""
        return next(word for word in self.command_line if word.endswith((".py", ".sh")))

    @property
    def submitted(self) -> bool:
        """Whether it is a job. Otherwise, ``cloudtrain run`` starts it in the foreground."""
        return self.command_line[0] == "submit"

    @property
    def data(self) -> set[str]:
        """The names of the data in S3."""
        return set(re.findall(r"s3://data/(\w+)", self.command))

    @property
    def outcome(self) -> str:
        """The outcome, for the table of the documentation."""
        if self.not_run:
            return f"not run: {self.not_run}"
        if self.exit_status:
            return f"fails: `{self.error}`"
        left = ", ".join(f"`{name}`" for name in (*self.model, *self.output))
        return f"completes, leaves {left}" if left else "completes"


def read_scripts() -> list[Script]:
    """All scripts, sorted by file."""
    return [script for path in sorted(FOLDER.glob("*.yaml")) for script in _read(path)]


def read_pythons() -> dict[str, Any]:
    """The interpreters that the scripts need, with the packages of each."""
    described: dict[str, Any] = yaml.safe_load(PYTHONS.read_text())
    return described


def _read(path: Path) -> Iterator[Script]:
    document = yaml.safe_load(path.read_text())
    scripts = document.pop("scripts")
    repository = Repository(folder=path.stem, **document)
    for fields in scripts:
        lists = {key: tuple(fields.pop(key)) for key in ("prints", "model", "output") if key in fields}
        yield Script(repository=repository, **fields, **lists)
