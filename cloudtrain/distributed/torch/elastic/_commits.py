"""The last commit of a host, in a file that outlives the host's ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cloudtrain.errors import StorageError
from cloudtrain.storage.atomic import TEMPORARY, temporary_beside


@dataclass(frozen=True)
class Commit:
    number: int
    """Commits of a run are counted from 1."""
    saved: dict[str, Any]


@dataclass(frozen=True)
class CommitFile:
    """Holds one commit: the one before, until the next is whole."""

    path: Path

    def write(self, commit: Commit) -> None:
        """Raises StorageError.

        Nothing waits for the disk: it is processes that die, and a host that dies takes its file along.
        """
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            with temporary_beside(self.path) as temporary:
                with temporary.open("wb") as file:
                    torch.save(vars(commit), file)
                os.replace(temporary, self.path)
        except (OSError, RuntimeError) as error:  # a full disk is the latter to torch
            raise StorageError(
                f"the commit cannot be written to {self.path}: {error}",
                hint="There must be room for twice the state. torchrun's --log-dir names another place.",
            ) from error

    def read(self) -> Commit | None:
        """None where there is no commit yet.

        A pickle, because a script may keep anything in its state; the folder is its user's alone.
        """
        if not self.path.exists():
            return None
        return Commit(**torch.load(self.path, weights_only=False))

    def sweep(self) -> None:
        """Remove what a killed `write` has left."""
        for path in self.path.parent.glob(f"{TEMPORARY}*"):
            path.unlink()


def commit_file(run: int, environ: Mapping[str, str] = os.environ) -> CommitFile | None:
    """Where this host keeps the commits of a script's ``run``-th call of `elastic.run`.

    That is in the job's run folder, else in the log folder of torchrun's agent: the agent makes it anew for each
    launch, for its user alone, and keeps it over restarts. It is known from ``TORCHELASTIC_ERROR_FILE``, which is
    ``<folder>/attempt_<restart>/<local rank>/error.json`` (``DefaultLogsSpecs`` in
    https://docs.pytorch.org/docs/stable/elastic/multiprocessing.html).

    Returns:
        None where no elastic agent has started this rank, or one without a log folder.
    """
    if "TORCHELASTIC_RUN_ID" not in environ:
        return None
    if environ.get("CLOUDTRAIN_RUN_DIR"):
        folder = Path(environ["CLOUDTRAIN_RUN_DIR"])
    elif environ.get("TORCHELASTIC_ERROR_FILE"):
        folder = Path(environ["TORCHELASTIC_ERROR_FILE"]).parents[2]
    else:
        return None
    return CommitFile(folder / "elastic" / f"run-{run}.pt")
