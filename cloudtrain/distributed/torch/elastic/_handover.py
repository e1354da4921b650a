"""Hands the state of an elastic training over to the next attempt of its job, maybe on other hosts, after a notice."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from pickle import PicklingError, UnpicklingError
from typing import Any, Callable

import torch

from cloudtrain import environment
from cloudtrain._system.patterns import pattern
from cloudtrain.contract import Notice
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.errors import CloudtrainError, NotFound, StorageError
from cloudtrain.observe import beat
from cloudtrain.storage import open_store
from cloudtrain.storage.retry_policy import Patience, using

_log = logging.getLogger(__name__)

_KIND = pattern(r"GLOBAL (\S+)")
_DIGEST = hashlib.sha256().digest_size


class Handover:
    """A commit of rank 0, below the URI of the job's checkpoints: hosts that are taken back take their files with them.

    Args:
        uri: of the checkpoints, which other jobs may have, too.
        job: the identity of the job, the same in all attempts. Another one begins at its start.
        run: the number of the script's call of `elastic.run`.
    """

    def __init__(self, uri: str, job: str, run: int) -> None:
        self._store = open_store(uri)
        self._key = f"elastic/{hashlib.sha256(job.encode()).hexdigest()[:16]}/run-{run}.pt"
        self._is_there = self._is_refused = False

    def leave_if_preempted(self, commit: Callable[[], Mapping[str, Any]]) -> None:
        """After a notice: write the commit, and exit. The exit of rank 0 ends the others.

        If it cannot be written, the training continues for as long as its hosts do.
        """
        notice = None if self._is_refused else _notice()
        if notice is None:
            return
        end = time.monotonic() + notice.deadline - time.time()
        try:
            with using(Patience(waiting=beat, until=lambda: end)):
                self.write(commit())
        except CloudtrainError as error:
            self._is_refused = isinstance(error, InvalidArgument)
            _log.warning("the training does not move to other hosts now: %s", error)
        else:
            environment.exit_if_preempted()

    def write(self, commit: Mapping[str, Any]) -> None:
        """Raises StorageError, and InvalidArgument if the state has values that are not handed over."""
        content = io.BytesIO()
        try:
            torch.save(dict(commit), content)
            content.seek(0)
            torch.load(content, weights_only=True)
        except UnpicklingError as error:
            kind = _KIND.search(str(error))
            raise _refused(kind[1] if kind else "value") from None
        except (PicklingError, AttributeError, TypeError) as error:
            # without torchrun, nothing was pickled before
            raise _refused(f"value that cannot be pickled ({error})") from None
        data = content.getbuffer()
        self._store.write(self._key, [memoryview(hashlib.sha256(data).digest()), data])

    def read(self) -> dict[str, Any] | None:
        """The commit; None if there is none. Raises StorageError if it is damaged."""
        try:
            with using(Patience(waiting=beat)):
                content = memoryview(self._store.read(self._key))
        except NotFound:
            return None
        self._is_there = True
        digest, data = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(data).digest() == digest and (found := _loaded(data)) is not None:
            return found
        raise StorageError(
            f"the commit {self._store.uri}/{self._key} is damaged",
            hint="Remove it: the training then begins at the newest commit that its hosts have, or at its start.",
        )

    def remove(self) -> None:
        """The training is complete: nothing continues from what it has taken over."""
        if self._is_there:
            try:
                with using(Patience(0.0)):
                    self._store.delete([self._key])
            except CloudtrainError as error:
                _log.warning("%s/%s stays there: %s", self._store.uri, self._key, error)


def _loaded(data: memoryview) -> dict[str, Any] | None:
    """The commit in ``data``; None if it is none. Nothing of it runs: another user may be able to write there."""
    try:
        found = torch.load(io.BytesIO(data), weights_only=True)
    except Exception:  # torch raises several kinds
        return None
    is_commit = isinstance(found, dict) and found.keys() == {"number", "saved"}
    return found if is_commit and type(found["number"]) is int and isinstance(found["saved"], dict) else None


def _refused(what: str) -> InvalidArgument:
    return InvalidArgument(
        f"the state holds a {what}, which is not handed over to other hosts",
        hint="Keep tensors, numbers, texts, lists, dicts and objects that have a state_dict of those in it.",
    )


def _notice() -> Notice | None:
    """The notice, if there is one.

    torchrun's agent ends ranks by SIGTERM when it restarts them. That is none: only the file of the job's runtime is.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        run = os.environ.get("CLOUDTRAIN_RUN_DIR")
        return Notice.read(Path(run)) if run else None
    return environment.preemption()
