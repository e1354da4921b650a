"""Hands the state of an elastic training over to the next attempt of its job, maybe on other hosts, after a notice."""

from __future__ import annotations

import hashlib
import io
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Callable

import torch

from cloudtrain import environment
from cloudtrain._system.patterns import pattern
from cloudtrain.contract import Notice
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.errors import CloudtrainError, NotFound, StorageError
from cloudtrain.storage import open_store

_log = logging.getLogger(__name__)

_KIND = pattern(r"GLOBAL (\S+)")
_DIGEST = hashlib.sha256().digest_size


class Handover:
    """A commit of rank 0, below the URI of the job's checkpoints: hosts that are taken back take their files with them.

    Args:
        uri: of the checkpoints.
        run: the number of the script's call of `elastic.run`.
    """

    def __init__(self, uri: str, run: int) -> None:
        self._store = open_store(uri)
        self._key = f"elastic/run-{run}.pt"
        self._is_refused = False

    def leave_if_preempted(self, commit: Callable[[], Mapping[str, Any]]) -> None:
        """After a notice: write the commit, and exit. The exit of rank 0 ends the others.

        If it cannot be written, the training continues for as long as its hosts do.
        """
        if self._is_refused or not _is_noticed():
            return
        try:
            self.write(commit())
        except CloudtrainError as error:
            self._is_refused = isinstance(error, InvalidArgument)
            _log.warning("the training does not move to other hosts now: %s", error)
        else:
            environment.exit_if_preempted()

    def write(self, commit: Mapping[str, Any]) -> None:
        """Raises StorageError, and InvalidArgument if the state has values that only a pickle can hold."""
        content = io.BytesIO()
        torch.save(dict(commit), content)
        data = content.getvalue()
        try:
            torch.load(io.BytesIO(data), weights_only=True)
        except UnpicklingError as error:
            kind = _KIND.search(str(error))
            raise InvalidArgument(
                f"the state holds a {kind[1] if kind else 'value'}, which is not handed over to other hosts",
                hint="Keep tensors, numbers, texts, lists, dicts and objects that have a state_dict of those in it.",
            ) from None
        self._store.write(self._key, hashlib.sha256(data).digest() + data)

    def read(self) -> dict[str, Any] | None:
        """The commit; None if there is none. Raises StorageError if it is damaged."""
        try:
            content = self._store.read(self._key)
        except NotFound:
            return None
        data = content[_DIGEST:]
        if hashlib.sha256(data).digest() != content[:_DIGEST]:
            raise StorageError(
                f"the commit {self._store.uri}/{self._key} is damaged",
                hint="Remove it: the training then begins at the newest commit that its hosts have, or at its start.",
            )
        # nothing of it runs: another user may be able to write there
        found: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
        return found


def _is_noticed() -> bool:
    """Whether there is a notice.

    torchrun's agent ends ranks by SIGTERM when it restarts them. That is none: only the file of the job's runtime is.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        run = os.environ.get("CLOUDTRAIN_RUN_DIR")
        return bool(run and Notice.read(Path(run)))
    return environment.preemption() is not None
