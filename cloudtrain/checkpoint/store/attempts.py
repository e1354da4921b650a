"""The attempts of a job that save to one store: once a later one has taken over, earlier ones commit nothing.

A host that was given up may only be paused or cut off, and its ranks may train for another hour. These records keep
them from committing:

    attempts/<run>/000001.json          created by attempt 1 before it looks for checkpoints
    attempts/<run>/000001-steps.json    the steps that it found then

Where the platform does not count attempts, each has an identity that all its ranks share. Its number is that of the
first record that one of its ranks could create. The record lists the identities of all attempts up to it, in which
the other ranks find the number.

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
from cloudtrain.contract.trackers import ATTEMPT_ID, RUN_ID
from cloudtrain.errors import CheckpointError, NotFound, StorageError, Unreachable

ATTEMPT = "CLOUDTRAIN_ATTEMPT"
_RECORD = re.compile(r"(\d{6})(-steps)?\.json")


class Attempt(NamedTuple):
    """One attempt of one job."""

    run: str
    """The identity of the job, the same in all attempts."""
    number: int | None
    """0 for the first; None where the platform does not count attempts."""
    identity: str = ""
    """The same on all ranks of the attempt, and different in every attempt."""
    has_ended: bool = False
    """Whether its copies are committed after its end, in which case it does not take over from another attempt."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Attempt | None:
        """The attempt that a process belongs to; None outside a job."""
        run, number, identity = (environ.get(name, "") for name in (RUN_ID, ATTEMPT, ATTEMPT_ID))
        if not run or not (number.isdecimal() or identity):
            return None
        return cls(run, int(number) if number.isdecimal() else None, identity)

    @property
    def mark(self) -> int:
        """A number that differs between the attempts of a job, and does not order them."""
        if self.number is not None:
            return self.number
        return int.from_bytes(hashlib.sha256(self.identity.encode()).digest()[:6], "big")


class Attempts:
    """The rights of ``attempt`` in the store of ``catalog``, and the steps that count for it. None is unrestricted.

    Methods raise CheckpointError if a later attempt has taken over, and StorageError.
    """

    def __init__(self, catalog: Catalog, attempt: Attempt | None) -> None:
        self._catalog, self._store = catalog, catalog.store
        self._attempt = attempt
        self.run = attempt.run if attempt else None
        """The identity of the job."""
        self.number = attempt.number if attempt else None
        """The number of the attempt; None until it is known."""
        self._key = hashlib.sha256(attempt.run.encode()).hexdigest()[:16] if attempt else ""
        self._found: frozenset[int] | None = None
        """The steps that were committed when this attempt took over; None before that."""
        self._fine: set[int] = set()
        """Steps that were committed since then by this attempt, or by a process that is not an attempt of this job."""

    def check(self) -> None:
        """Raises CheckpointError if a later attempt has taken over."""
        self._records()

    def take_over(self, *, to_save: bool) -> None:
        """Keep earlier attempts from committing from now on. Does nothing in the first attempt.

        Args:
            to_save: False if this process may only read, so that nothing is written next to the checkpoints of others.
        """
        try:
            self._take_over(to_save=to_save)
        except (Unreachable, CheckpointError):
            raise
        except StorageError:  # such as no permission to write
            if to_save:
                raise

    def _take_over(self, *, to_save: bool) -> None:
        if self._attempt is None:
            return
        if self.number is None:
            self.number = self._own_number(to_save=to_save)
        records, number = self._records(), self.number
        if not number or self._found is not None:
            return
        self._found = self._read_steps(number)
        if self._found is not None or not (to_save or number in records or self._may_be_ours()):
            return
        before: tuple[int, frozenset[int]] | None = None
        for record in records:
            steps = self._read_steps(record)
            before = before if steps is None else (record, steps)
        if number not in records:
            self._store.create(attempt_key(self._key, number), self._document())
        committed = frozenset(self._catalog.listing().committed)
        if before is not None:
            committed -= self._strays(committed - before[1], before[0])
        if self._store.create(steps_key(self._key, number), self._document(steps=sorted(committed))):
            earlier = [record for record in records if record < number]
            self._store.delete(
                key(self._key, record) for record in earlier for key in (attempt_key, steps_key)
            )
        self._found = self._read_steps(number)

    def _own_number(self, *, to_save: bool) -> int | None:
        """The number of this attempt where the platform does not count; None if it has none and needs none."""
        assert self._attempt is not None
        number = max(self._numbers(), default=-1)
        while True:
            known = self._read_identities(number) if number >= 0 else []
            if known is None:  # removed by a later attempt
                number = max(self._numbers(), default=-1)
            elif self._attempt.identity in known:
                return number + 1 - len(known) + known.index(self._attempt.identity)
            elif self._attempt.has_ended and number >= 0:
                raise CheckpointError(
                    "another attempt of this job has taken over from the one that made this copy"
                )
            elif not to_save and not self._may_be_ours():
                return None
            else:
                number += 1
                record = self._document(attempt=number, identities=[*known, self._attempt.identity])
                if self._store.create(attempt_key(self._key, number), record):
                    # a listing of a folder may miss a record that is created while the one before it is removed
                    number = max(self._numbers(), default=-1)

    def strays(self, committed: Collection[int], appeared: Collection[int] = ()) -> frozenset[int]:
        """The steps that an earlier attempt committed after this one had taken over.

        Args:
            appeared: steps that were not there when this process last listed them.
        """
        if self._found is None or self.number is None:
            return frozenset()
        strays = self._strays({*committed} - self._found - self._fine | {*appeared}, self.number)
        self._fine |= {*committed} - strays
        return strays

    def _numbers(self) -> list[int]:
        """The numbers of the attempts that have taken over."""
        prefix = attempts_prefix(self._key)
        names = (_RECORD.fullmatch(found.key[len(prefix) :]) for found in self._store.list(prefix))
        return sorted({int(name[1]) for name in names if name})

    def _records(self) -> list[int]:
        """Like `_numbers`. Raises CheckpointError if one is later than this attempt."""
        if self.number is None:
            return []
        numbers = self._numbers()
        if numbers and numbers[-1] > self.number:
            raise CheckpointError(
                f"attempt {numbers[-1]} of this job has taken over from this one, attempt {self.number}",
                hint="This process belongs to a host that was given up: it saves nothing more. The checkpoints of the "
                "later attempt are whole.",
            )
        return numbers

    def _may_be_ours(self) -> bool:
        """Whether the newest checkpoint here, if there is one, was saved by this job."""
        committed = self._catalog.listing().committed
        if not committed:
            return True
        with contextlib.suppress(CheckpointError):
            return self._run_of(self._catalog.manifest(committed[-1])) is not None
        return False

    def _run_of(self, manifest: Manifest) -> int | None:
        """The number of the attempt of this job that saved a checkpoint; None if none has."""
        return manifest.attempt if self.run is not None and manifest.run == self.run else None

    def _strays(self, steps: Collection[int], number: int) -> frozenset[int]:
        strays = set()
        for step in steps:
            with contextlib.suppress(CheckpointError):  # not readable
                saved_by = self._run_of(self._catalog.read_manifest(step))
                if saved_by is not None and saved_by < number:
                    strays.add(step)
        return frozenset(strays)

    def _document(self, **fields: object) -> bytes:
        return json.dumps({"run": self.run, "attempt": self.number, **fields}).encode()

    def _read_steps(self, number: int) -> frozenset[int] | None:
        """The steps that an attempt found; None if that is not recorded."""
        try:
            data = self._store.read(steps_key(self._key, number))
            return frozenset(step for step in Fields(parse_json(data)).items("steps") if type(step) is int)
        except (NotFound, ValueError):
            return None

    def _read_identities(self, number: int) -> list[str] | None:
        """The identities of the attempts up to ``number``, as far as they are known; None if it has no record."""
        try:
            return list(
                Fields(parse_json(self._store.read(attempt_key(self._key, number)))).texts("identities")
            )
        except NotFound:
            return None
        except ValueError:
            return []
