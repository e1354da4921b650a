"""Checkpoints that all ranks save and restore together: each its shards, one manifest by rank 0.

A save needs no barrier of the training: the threads that save speak with each other. Rank 0 tells the others
under which name to write, each writes its objects and tells rank 0 what they are, rank 0 writes the manifest and
tells how it went. What fails on one rank fails on all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cloudtrain.checkpoint._crew import Crew
from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._manifest import StoredObject
from cloudtrain.checkpoint._place import Draft, Place, Save
from cloudtrain.checkpoint._ranks import Ranks
from cloudtrain.checkpoint._shards import RankShards, merged
from cloudtrain.errors import CheckpointError, CloudtrainError

Prepare = Callable[[], "tuple[Save, RankShards]"]
"""Makes what this rank saves. It may fail, which all ranks are told."""

Written = tuple[Save, tuple[StoredObject, ...], RankShards]
"""What a rank has saved: as a whole, its objects, and its shards."""

Answer = TypeVar("Answer")


class Together:
    """The ranks that save at ``place``."""

    def __init__(self, place: Place, ranks: Ranks) -> None:
        self.ranks = ranks
        self._place = place
        self._written: tuple[str, Sequence[StoredObject]] | None = None
        """The last save that this rank, not being the first, has had a part in, and that part."""

    def ask_first(self, ask: Callable[[], Answer]) -> Answer:
        """What rank 0 answers, as JSON carries it; where it raises, all do."""
        answer, failure = _tried(ask) if self.ranks.rank == 0 else (None, None)
        word = self.ranks.gather(_failed(failure) if failure else {"answer": answer})[0]
        if failure is not None:
            raise failure
        _raise_failed(word)
        told: Answer = word["answer"]
        return told

    def load(self, step: int, into: Any, crew: Crew) -> Any:
        """As `Place.load`. Raises Damaged on every rank if one has found damage, so that all go back alike."""
        state, failure = _tried(lambda: self._place.load(step, into, crew))
        words = self.ranks.gather(_failed(failure) if failure else {})
        if failure is not None and not isinstance(failure, Damaged):
            raise failure
        for rank, word in enumerate(words):
            if not word.get("damaged"):
                _raise_failed(word, f"rank {rank}: ")
        damage = next((word for word in words if "failure" in word), None)
        if damage is not None:
            self._place.distrust(step)
            raise Damaged(damage["failure"]) from failure
        return state

    def commit(self, step: int, prepare: Prepare, crew: Crew) -> None:
        """As `Place.commit`, on all ranks at the same time.

        Raises:
            CheckpointError: some rank has failed, or is gone.
        """
        if self.ranks.rank == 0:
            self._lead(step, prepare, crew)
        else:
            self._follow(step, prepare, crew)

    def _lead(self, step: int, prepare: Prepare, crew: Crew) -> None:
        place = self._place
        try:
            draft = place.begin(step)
            base = place.base.save if place.base else None
            self.ranks.tell({"step": step, "name": draft and draft.name, "base": base})
            if draft is None:
                return
            with place.discarding(draft):
                save, tensors, shards = self._gather(draft, prepare, crew)
                manifest = place.complete(draft, merged(save.document, shards), tensors, save.about)
            place.create(manifest, draft)
            self.ranks.tell({})
        except BaseException as error:
            self.ranks.tell(_failed(error))
            raise
        finally:
            self.ranks.flush()
        place.tidy(draft)

    def _gather(
        self, draft: Draft, prepare: Prepare, crew: Crew
    ) -> tuple[Save, tuple[StoredObject, ...], list[RankShards]]:
        """Write this rank's objects, and wait for those of the others, even if it has failed: they still write."""
        written, failure = _tried(lambda: self._write(draft.step, draft.name, prepare, crew))
        words = self.ranks.receive_all()
        if failure is not None:
            raise failure
        for rank, word in enumerate(words, 1):
            _raise_failed(word, f"rank {rank}: ")
        assert written is not None
        save, tensors, own = written
        others = (StoredObject.from_json(entry) for word in words for entry in word["tensors"])
        shards = [own, *(RankShards.from_json(word["shards"]) for word in words)]
        return save, (*tensors, *others), shards

    def _follow(self, step: int, prepare: Prepare, crew: Crew) -> None:
        word = self.ranks.receive()
        _raise_failed(word)
        name, base = word["name"], word["base"]

        def write() -> Written:
            if word["step"] != step:  # what they saved together would be of two steps
                raise CheckpointError(
                    f"rank {self.ranks.rank} saves step {step}, and rank 0 step {word['step']}",
                    hint="Every rank calls save, maybe_save and restore at the same steps.",
                )
            return self._write(step, name, prepare, crew, base)

        if name is None:
            return
        written, failure = _tried(write)
        if written is None:
            self.ranks.report(_failed(failure))
        else:
            _, tensors, shards = written
            entries = [entry.to_json() for entry in tensors]
            self.ranks.report({"tensors": entries, "shards": shards.to_json()})
        answer = self.ranks.receive()
        if failure is not None:
            raise failure
        _raise_failed(answer)
        assert written is not None
        self._written = name, written[1]

    def _write(self, step: int, name: str, prepare: Prepare, crew: Crew, base: str | None = None) -> Written:
        save, shards = prepare()
        rank = self.ranks.rank
        reusable = self._place.reusable if rank == 0 else self._reusable(base)
        return save, self._place.write(step, name, save.files, reusable, crew, rank), shards

    def _reusable(self, base: str | None) -> Sequence[StoredObject]:
        """What need not be written again: only of the save that rank 0 knows to be whole."""
        if self._written is not None and self._written[0] == base:
            return self._written[1]
        here = self._place.base
        return here.tensors if here is not None and here.save == base else ()


def _tried(function: Callable[[], Answer]) -> tuple[Answer | None, Exception | None]:
    """What it returns, or what it raises."""
    try:
        return function(), None
    except Exception as error:
        return None, error


def _failed(error: BaseException | None) -> dict[str, Any]:
    """An error, as ranks tell it each other."""
    message, hint = (error.message, error.hint) if isinstance(error, CloudtrainError) else (repr(error), "")
    return {"failure": message, "hint": hint, "damaged": isinstance(error, Damaged)}


def _raise_failed(word: Mapping[str, Any], who: str = "") -> None:
    if "failure" in word:
        raise CheckpointError(who + word["failure"], hint=word["hint"])
