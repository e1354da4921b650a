"""Commits of elastic training, and the file in which a host keeps the last one across restarts of its ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cloudtrain._system.files import READ_REGULAR
from cloudtrain._system.users import owns, user_id
from cloudtrain.errors import StorageError
from cloudtrain.storage.atomic import TEMPORARY, temporary_sibling


@dataclass(frozen=True)
class Commit:
    """The state of the training at one commit."""

    number: int
    """Commits of a run are numbered from 1."""
    saved: dict[str, Any]


@dataclass(frozen=True)
class CommitFile:
    """A file with one commit. It keeps the previous commit until the next one is complete."""

    path: Path

    def write(self, commit: Commit) -> None:
        """Raises StorageError.

        Does not call fsync, because the file protects against the death of processes, not of the host.
        """
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            with temporary_sibling(self.path) as temporary:
                private = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
                with open(os.open(temporary, private, 0o600), "wb") as file:
                    torch.save(vars(commit), file)
                os.replace(temporary, self.path)
        except (OSError, RuntimeError) as error:  # torch raises RuntimeError for a full disk
            raise StorageError(
                f"the commit cannot be written to {self.path}: {error}",
                hint="Free space for two copies of the state, or choose another folder with torchrun's --log-dir.",
            ) from error

    def read(self) -> Commit | None:
        """The commit; None if there is none.

        It is a pickle, because a script may keep any object in its state, so only a file that no other user could
        have written is read.

        Raises:
            StorageError: another user can write the file, or to its folder.
        """
        try:
            descriptor = os.open(self.path, READ_REGULAR)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with open(descriptor, "rb") as file:
            for what, status in (
                (self.path, os.fstat(descriptor)),
                (self.path.parent, self.path.parent.stat()),
            ):
                if not owns(status) or (user_id() >= 0 and status.st_mode & 0o022):
                    raise StorageError(
                        f"another user can write to {what}, so the commit in it is not read",
                        hint="Remove it, and choose a folder that only you can write to with torchrun's --log-dir.",
                    )
            return Commit(**torch.load(file, weights_only=False))

    def sweep(self) -> None:
        """Remove the leftovers of a killed `write`."""
        for path in self.path.parent.glob(f"{TEMPORARY}*"):
            path.unlink()


def commit_file(run: int, environ: Mapping[str, str] = os.environ) -> CommitFile | None:
    """The file in which this host keeps the commits of a script's ``run``-th call of `elastic.run`.

    It is in the job's run folder, or else in the log folder of torchrun's agent, which the agent creates for each
    launch, accessible to its user only, and keeps across restarts. ``TORCHELASTIC_ERROR_FILE`` reveals it:
    ``<folder>/attempt_<restart>/<local rank>/error.json`` (``DefaultLogsSpecs`` in
    https://docs.pytorch.org/docs/stable/elastic/multiprocessing.html).

    Returns:
        None if the rank was not started by an elastic agent with a log folder.
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
