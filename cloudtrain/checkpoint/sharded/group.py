"""How the ranks of a sharded checkpoint speak with each other: over groups of their own, made of Gloo.

One group serves the threads that save, so that they never meet a collective of the training; it goes on
when the script has destroyed its process groups. The other one serves the training thread.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from cloudtrain import environment
from cloudtrain.errors import CheckpointError

PATIENCE = 600.0
"""Seconds without a word from a rank until it counts as lost. One that has ended is missed at once."""

Flags = Sequence[bool]


class Ranks:
    """This process among those that save together. A process alone is one of one.

    Raises:
        CheckpointError: there are several ranks, and no process group of torch.distributed; or a rank has not
            come. All methods raise it when a rank is gone.
    """

    def __init__(self) -> None:
        self.rank, self.size = _world()
        self._vote: Any = None
        self._told: list[tuple[Any, Any]] = []
        """What is on its way: the work, and the tensor that must live as long."""
        if self.size > 1:
            import torch
            import torch.distributed as dist

            self._torch = torch
            # While rank 0 waits for the last one, the others wait for rank 0.
            timeout = timedelta(seconds=2 * PATIENCE)
            with _speaking("a rank has not come to save or restore"):
                self._training = dist.new_group(backend="gloo", timeout=timeout)
                self._saving = dist.new_group(backend="gloo", timeout=timeout)

    def gather(self, document: Any) -> list[Any]:
        """The documents of all ranks, JSON of any length. For the training thread, on all ranks."""
        if self.size == 1:
            return [document]
        mine = self._bytes(document)
        lengths = self._torch.zeros(self.size, dtype=self._torch.int64)
        lengths[self.rank] = mine.numel()
        with _speaking("a rank is gone"):
            self._training.allreduce([lengths]).wait()
            longest = int(lengths.max())
            table = [self._torch.zeros(longest, dtype=self._torch.uint8) for _ in range(self.size)]
            padded = self._torch.zeros(longest, dtype=self._torch.uint8)
            padded[: mine.numel()] = mine
            self._training.allgather([table], [padded]).wait()
        return [_document(row[: int(length)]) for row, length in zip(table, lengths)]

    def vote(self, flags: Flags) -> None:
        """Tell all ranks; `verdict` has the answer. For the training thread, on all ranks; never waits."""
        if self.size == 1:
            self._vote = None, list(flags)
            return
        votes = self._torch.tensor(flags, dtype=self._torch.int64)
        with _speaking("a rank is gone"):
            self._vote = self._training.allreduce([votes]), votes

    def verdict(self, none: Flags) -> list[bool]:
        """Each flag of the last vote that any rank has set; ``none`` where none was held."""
        if self._vote is None:
            return list(none)
        (work, votes), self._vote = self._vote, None
        if work is not None:
            with _speaking("a rank is gone"):
                work.wait()
        return [bool(vote) for vote in votes]

    def tell(self, document: Any) -> None:
        """To all others, which receive it; from rank 0. For the thread that saves.

        Does not wait, and does not fail: a rank that is not there is missed when it should answer.
        """
        for rank in range(1, self.size):
            with contextlib.suppress(RuntimeError):
                self._send(rank, document)

    def flush(self) -> None:
        """Until what was told has come, wherever there is still somebody."""
        told, self._told = self._told, []
        for work, _ in told:
            with contextlib.suppress(RuntimeError):
                work.wait()

    def report(self, document: Any) -> None:
        """To rank 0, which receives it. For the thread that saves."""
        with _speaking("rank 0 is gone, or waits no longer"):
            self._send(0, document)
            told, self._told = self._told, []
            for work, _ in told:
                work.wait()

    def receive(self) -> Any:
        """What rank 0 tells. For the thread that saves."""
        with _speaking("rank 0 is gone, or waits no longer"):
            length = self._torch.zeros(1, dtype=self._torch.int64)
            self._saving.recv([length], 0, 0).wait()
            return self._payload(0, int(length))

    def receive_all(self) -> list[Any]:
        """On rank 0: what every other rank sends, in their order. For the thread that saves.

        Raises:
            CheckpointError: names the ranks of which nothing has come.
        """
        waiting, documents, missing, late = [], [], [], False
        for rank in range(1, self.size):
            length = self._torch.zeros(1, dtype=self._torch.int64)
            try:
                waiting.append((rank, length, self._saving.recv([length], rank, 0)))
            except RuntimeError:
                missing.append(rank)
        deadline = time.monotonic() + PATIENCE
        # All of them, even if one is missing: none of those that are there may be left talking to nobody.
        for rank, length, work in waiting:
            try:
                work.wait(timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
                if not late:  # all connections are closed then
                    documents.append(self._payload(rank, int(length)))
            except RuntimeError:
                missing.append(rank)
                late |= time.monotonic() >= deadline
        if missing:
            names = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, sorted(missing)))}"
            what = (
                f"did not save within {PATIENCE:.0f} seconds" if late else "ended before its part was saved"
            )
            raise CheckpointError(
                f"{names} {what}", hint="Every rank calls save, maybe_save and restore at the same steps."
            )
        return documents

    def _send(self, rank: int, document: Any) -> None:
        payload = self._bytes(document)
        for tensor in (self._torch.tensor([payload.numel()]), payload):
            self._told.append((self._saving.send([tensor], rank, 0), tensor))

    def _payload(self, rank: int, length: int) -> Any:
        payload = self._torch.zeros(length, dtype=self._torch.uint8)
        self._saving.recv([payload], rank, 0).wait()
        return _document(payload)

    def _bytes(self, document: Any) -> Any:
        return self._torch.frombuffer(bytearray(json.dumps(document).encode()), dtype=self._torch.uint8)


def _document(payload: Any) -> Any:
    return json.loads(payload.numpy().tobytes())


def _world() -> tuple[int, int]:
    """This rank, and how many there are."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if environment.world_size() > 1:
        raise CheckpointError(
            f"this is one of {environment.world_size()} ranks, and they have not met",
            hint="A sharded checkpoint needs torch.distributed: call init_process_group first.",
        )
    return 0, 1


@contextlib.contextmanager
def _speaking(what: str) -> Iterator[None]:
    """Torch raises RuntimeError for what happens to a connection."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0][:300]
        raise CheckpointError(f"{what}: {reason}", hint="See what its own output says.") from error
