"""After a notice, hands the state of elastic training over to the next attempt of the job, possibly on other hosts."""

from __future__ import annotations

import hashlib
import io
import logging
import math
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from pickle import PicklingError, UnpicklingError
from typing import Callable

import torch

from cloudtrain import environment
from cloudtrain._system.patterns import pattern
from cloudtrain.contract import PREEMPTED, Notice
from cloudtrain.contract.preemption import SignalsOfAgent
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.torch.elastic._commit import Commit
from cloudtrain.environment.commits import commit_key, commit_of, commits_prefix
from cloudtrain.environment.job import is_told_to_end
from cloudtrain.errors import CloudtrainError, StorageError
from cloudtrain.observe import beat, committing
from cloudtrain.storage import open_store
from cloudtrain.storage.retry_policy import Patience, using

_log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0
"""The pause before a failed handover is retried."""

_KIND = pattern(r"GLOBAL (\S+)")
_DIGEST = hashlib.sha256().digest_size


class Handover:
    """Commits of rank 0, below the URI of the job's checkpoints, because hosts that are taken back lose their files.

    Each commit has its number in its key, so that a host that was only paused does not replace a newer commit.

    Args:
        uri: the URI of the checkpoints, which other jobs may share.
        job: the identity of the job, the same in all attempts. A job with another identity reads none of these commits.
        run: the number of the script's call of `elastic.run`.
    """

    def __init__(self, uri: str, job: str, run: int) -> None:
        self._store = open_store(uri)
        self._prefix = commits_prefix(hashlib.sha256(job.encode()).hexdigest()[:16], run)
        self._newest = 0
        """The number of the newest stored commit that this process has written or read."""
        self._is_refused = False
        self._next_try = -math.inf

    def leave_if_preempted(self, commit: Callable[[], Commit]) -> None:
        """After a notice, write the commit, and exit. The exit of rank 0 ends the other ranks.

        If the commit cannot be written, training continues until its hosts end, and the write is retried.
        """
        if _notice() is None or time.monotonic() < self._next_try:
            return
        if self._is_refused:
            if is_told_to_end():
                environment.exit_if_preempted()
        elif self._write(commit(), "the training does not move to other hosts now"):
            sys.exit(PREEMPTED)
        else:
            self._next_try = time.monotonic() + AGAIN_SECONDS

    def keep(self, commit: Commit) -> None:
        """Write the last commit of training that has ended, in case the script fails after it."""
        if commit.number > self._newest and not self._is_refused:
            self._write(commit, "if this job restarts, it repeats the training that has ended")

    def _write(self, commit: Commit, otherwise: str) -> bool:
        """Write the commit. Returns whether that succeeded; if not, a warning states the consequence, ``otherwise``."""
        try:
            with committing(), using(Patience(waiting=beat, until=_deadline)):
                self.write(commit)
        except CloudtrainError as error:
            self._is_refused = isinstance(error, InvalidArgument)
            _log.warning("%s: %s", otherwise, error)
            return False
        return True

    def write(self, commit: Commit) -> None:
        """Raises StorageError, also for lack of memory, and InvalidArgument for values that are not handed over."""
        content = io.BytesIO()
        try:
            torch.save(vars(commit), content)
            content.seek(0)
            torch.load(content, map_location="meta", weights_only=True)  # without another copy
        except UnpicklingError as error:
            kind = _KIND.search(str(error))
            raise _refused(kind[1] if kind else "value") from None
        except (PicklingError, AttributeError, TypeError, RuntimeError) as error:
            # without torchrun, nothing was pickled before; torch raises RuntimeError for tensors without a meta kernel
            raise _refused(f"value that cannot be pickled and loaded again ({error})") from None
        except MemoryError:
            raise StorageError(
                "the memory of this host is too small for a copy of the state",
                hint="Choose a host with more memory.",
            ) from None
        data = content.getbuffer()
        self._store.write(
            commit_key(self._prefix, commit.number), [memoryview(hashlib.sha256(data).digest()), data]
        )
        older, self._newest = self._newest, commit.number
        self._delete([older] if 0 < older < commit.number else [])

    def read(self, after: int = 0) -> Commit | None:
        """The newest commit; None if none is later than number ``after``. Raises StorageError if it is damaged."""
        with using(Patience(waiting=beat)):
            found = (commit_of(info.key) for info in self._store.list(self._prefix))
            numbers = sorted(number for number in found if number is not None)
            if not numbers or numbers[-1] <= after:
                return None
            key = commit_key(self._prefix, numbers[-1])
            content = memoryview(self._store.read(key))
        digest, data = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(data).digest() == digest and (commit := _loaded(data)) is not None:
            self._newest = numbers[-1]
            self._delete(numbers[:-1])
            return commit
        raise StorageError(
            f"the commit {self._store.uri}/{key} is damaged",
            hint="Remove it: the training then begins at the newest commit that its hosts have, or at its start.",
        )

    def _delete(self, numbers: Iterable[int]) -> None:
        try:
            with using(Patience(0.0)):
                self._store.delete(commit_key(self._prefix, number) for number in numbers)
        except CloudtrainError as error:
            _log.warning("an older commit stays in %s/%s: %s", self._store.uri, self._prefix, error)


def _loaded(data: memoryview) -> Commit | None:
    """The commit in ``data``; None if invalid. Runs no code from ``data``, which another user may have written."""
    try:
        found = torch.load(io.BytesIO(data), weights_only=True)
    except Exception:  # torch raises several kinds
        return None
    if not isinstance(found, dict) or found.keys() != {"number", "saved"}:
        return None
    return Commit(**found) if type(found["number"]) is int and isinstance(found["saved"], dict) else None


def _deadline() -> float | None:
    """The deadline of the notice, on the clock of `time.monotonic`; None without a notice."""
    notice = _notice()
    return None if notice is None else time.monotonic() + notice.deadline - time.time()


def _refused(what: str) -> InvalidArgument:
    return InvalidArgument(
        f"the state holds a {what}, which is not handed over to other hosts",
        hint="Keep tensors, numbers, texts, lists, dicts and objects that have a state_dict of those in it.",
    )


def heed_notices() -> None:
    """Treat SIGTERM as a notice from now on: rank 0 hands the state over and exits, which ends the other ranks.

    Does nothing under torchrun's agent, which ends ranks with SIGTERM to restart them, unless the agent is that of a
    job.
    """
    folder = os.environ.get("CLOUDTRAIN_RUN_DIR")
    if "TORCHELASTIC_RUN_ID" not in os.environ or (folder and SignalsOfAgent(Path(folder)).accept()):
        environment.preemption()


def _notice() -> Notice | None:
    """The notice, if there is one."""
    folder = os.environ.get("CLOUDTRAIN_RUN_DIR")
    if "TORCHELASTIC_RUN_ID" not in os.environ or (folder and SignalsOfAgent(Path(folder)).are_notices):
        return environment.preemption()
    return Notice.read(Path(folder)) if folder else None
