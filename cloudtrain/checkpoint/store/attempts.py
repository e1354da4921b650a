"""The attempts of a job that save to one store: once a later one has taken over, earlier ones commit nothing.

A host that was given up may only be paused, or cut off, and its ranks train on for an hour. They find these records:

    attempts/<run>/000001.json          created by attempt 1 before it looks for checkpoints
    attempts/<run>/000001-steps.json    the steps that it found then

An attempt looks for the record of a later one before it commits, and once more before it deletes anything. A step
that is committed in between is not among those that the later attempt found, and its writer has deleted nothing. The
later attempt does not restore such a step, and removes it. All its ranks read the same list, so they resume from
the same step.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from cloudtrain.checkpoint.format.layout import attempt_key, attempts_prefix, steps_key
from cloudtrain.checkpoint.format.manifest import Manifest
from cloudtrain.checkpoint.store.catalog import Catalog
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.contract.trackers import RUN_ID
from cloudtrain.errors import CheckpointError, NotFound, StorageError, Unreachable

ATTEMPT = "CLOUDTRAIN_ATTEMPT"
_RECORD = re.compile(r"(\d{6})(-steps)?\.json")


class Attempt(NamedTuple):
    """One attempt of one job."""

    run: str
    """The identity of the job, the same in all attempts."""
    number: int
    """0 for the first."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Attempt | None:
        """The attempt that a process belongs to; None outside a job, and where the platform does not count attempts."""
        run, number = environ.get(RUN_ID, ""), environ.get(ATTEMPT, "")
        return cls(run, int(number)) if run and number.isdecimal() else None


class Attempts:
    """The rights of ``attempt`` in the store of ``catalog``, and the steps that count for it. None: all.

    Methods raise CheckpointError if a later attempt has taken over, and StorageError.
    """

    def __init__(self, catalog: Catalog, attempt: Attempt | None) -> None:
        self._catalog, self._store = catalog, catalog.store
        self.attempt = attempt
        self._run = hashlib.sha256(attempt.run.encode()).hexdigest()[:16] if attempt else ""
        self._found: frozenset[int] | None = None
        """The steps that were committed when this attempt took over; None before that."""
        self._fine: set[int] = set()
        """Steps that were committed since then by this attempt, or by others than attempts of this job."""

    def check(self) -> None:
        """Raises CheckpointError if a later attempt has taken over."""
        self._records()

    def take_over(self, *, to_save: bool) -> None:
        """From now on, earlier attempts commit nothing. The first attempt has no earlier ones.

        Args:
            to_save: False where this process may only read: then, nothing is written next to the checkpoints of others.
        """
        try:
            self._take_over(to_save=to_save)
        except (Unreachable, CheckpointError):
            raise
        except StorageError:  # such as no permission to write
            if to_save:
                raise

    def _take_over(self, *, to_save: bool) -> None:
        records = self._records()
        if self.attempt is None or not self.attempt.number or self._found is not None:
            return
        number = self.attempt.number
        self._found = self._read_steps(number)
        if self._found is not None or not (to_save or self._may_be_ours()):
            return
        before: tuple[int, frozenset[int]] | None = None
        for record in records:
            steps = self._read_steps(record)
            before = before if steps is None else (record, steps)
        self._store.create(attempt_key(self._run, number), self._document())
        committed = frozenset(self._catalog.listing().committed)
        if before is not None:
            committed -= self._strays(committed - before[1], before[0])
        if self._store.create(steps_key(self._run, number), self._document(steps=sorted(committed))):
            earlier = [record for record in records if record < number]
            self._store.delete(
                key(self._run, record) for record in earlier for key in (attempt_key, steps_key)
            )
        self._found = self._read_steps(number)

    def strays(self, committed: Collection[int], appeared: Collection[int] = ()) -> frozenset[int]:
        """The steps that an earlier attempt has committed although this one had taken over.

        Args:
            appeared: those that were not there when this process looked before.
        """
        if self._found is None or self.attempt is None:
            return frozenset()
        strays = self._strays({*committed} - self._found - self._fine | {*appeared}, self.attempt.number)
        self._fine |= {*committed} - strays
        return strays

    def _records(self) -> list[int]:
        """The numbers of the attempts that have taken over."""
        if self.attempt is None:
            return []
        prefix = attempts_prefix(self._run)
        names = (_RECORD.fullmatch(found.key[len(prefix) :]) for found in self._store.list(prefix))
        numbers = sorted({int(name[1]) for name in names if name})
        if numbers and numbers[-1] > self.attempt.number:
            raise CheckpointError(
                f"attempt {numbers[-1]} of this job has taken over from this one, attempt {self.attempt.number}",
                hint="This process belongs to a host that was given up: it saves nothing more. The checkpoints of the "
                "later attempt are whole.",
            )
        return numbers

    def _may_be_ours(self) -> bool:
        """Whether this job saves here, as far as its checkpoints show it."""
        committed = self._catalog.listing().committed
        if not committed:
            return True
        with contextlib.suppress(CheckpointError):
            return self._run_of(self._catalog.manifest(committed[-1])) is not None
        return False

    def _run_of(self, manifest: Manifest) -> int | None:
        """The number of the attempt of this job that saved a checkpoint; None if none has."""
        if self.attempt is None or manifest.run != self.attempt.run:
            return None
        return manifest.attempt

    def _strays(self, steps: Collection[int], number: int) -> frozenset[int]:
        strays = set()
        for step in steps:
            with contextlib.suppress(CheckpointError):  # not readable
                saved_by = self._run_of(self._catalog.read_manifest(step))
                if saved_by is not None and saved_by < number:
                    strays.add(step)
        return frozenset(strays)

    def _document(self, **fields: object) -> bytes:
        assert self.attempt is not None
        return json.dumps({"run": self.attempt.run, "attempt": self.attempt.number, **fields}).encode()

    def _read_steps(self, number: int) -> frozenset[int] | None:
        """The steps that an attempt found; None if that is not recorded."""
        try:
            data = self._store.read(steps_key(self._run, number))
            return frozenset(step for step in Fields(parse_json(data)).items("steps") if type(step) is int)
        except (NotFound, ValueError):
            return None
