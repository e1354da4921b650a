"""Communication between the ranks of a sharded checkpoint, over Gloo process groups made for it.

One group serves the threads that save, so that saving never interferes with a collective of the training; it also
keeps working after the script has destroyed its process groups. The other group serves the training thread.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from cloudtrain import environment
from cloudtrain.environment.job import process_group
from cloudtrain.errors import CheckpointError

TIMEOUT = 600.0
"""Seconds of silence after which a rank counts as lost. A rank whose process has ended is noticed immediately."""

LOOK_SECONDS = 1.0
"""How often a rank that waits for the votes of the others checks whether one of them has left the training."""
LONGEST_PAUSE = 0.02

Flags = Sequence[bool]


class RankGroup:
    """This process among those that save together. A single process is a group of one.

    Raises:
        CheckpointError: there are several ranks but no process group of torch.distributed, or a rank did not
            join. All methods raise it when a rank is gone.
    """

    def __init__(self) -> None:
        self.rank, self.size = _rank_and_size()
        self._vote: Any = None
        self._votes = 0
        """How often this rank has voted."""
        self._store: Any = None
        self._sending: list[tuple[Any, Any]] = []
        """Sends in flight: the work, and the tensor that must stay alive until it completes."""
        if self.size > 1:
            import torch
            import torch.distributed as dist

            self._torch = torch
            # While rank 0 waits for the last rank, the others wait for rank 0.
            timeout = timedelta(seconds=2 * TIMEOUT)
            with _connection_errors("a rank did not join to save or restore"):
                self._training = dist.new_group(backend="gloo", timeout=timeout)
                self._saving = dist.new_group(backend="gloo", timeout=timeout)
            self._store = _store(dist, self._training)

    def all_gather(self, document: Any) -> list[Any]:
        """The JSON documents of all ranks, of any length. Called by the training thread, on all ranks."""
        if self.size == 1:
            return [document]
        data = self._to_tensor(document)
        lengths = self._torch.zeros(self.size, dtype=self._torch.int64)
        lengths[self.rank] = data.numel()
        with _connection_errors("a rank is gone"):
            self._training.allreduce([lengths]).wait()
            longest = int(lengths.max())
            table = [self._torch.zeros(longest, dtype=self._torch.uint8) for _ in range(self.size)]
            padded = self._torch.zeros(longest, dtype=self._torch.uint8)
            padded[: data.numel()] = data
            self._training.allgather([table], [padded]).wait()
        return [_from_tensor(row[: int(length)]) for row, length in zip(table, lengths)]

    def start_vote(self, flags: Flags) -> None:
        """Send this rank's flags; `vote_result` returns the outcome.

        Called by the training thread, on all ranks; does not block.
        """
        self._votes += 1
        if self.size == 1:
            self._vote = None, list(flags)
            return
        votes = self._torch.tensor(flags, dtype=self._torch.int64)
        with _connection_errors("a rank is gone"):
            self._vote = self._training.allreduce([votes]), votes

    def leave(self, step: int) -> None:
        """Announce to the other ranks that this one stops voting after ``step``. Does not block."""
        if self._store is not None and self._votes:
            with contextlib.suppress(RuntimeError):  # the host of the store has ended
                self._store.set(str(self.rank), f"{self._votes} {step}")

    def vote_result(self, default: Flags, step: int) -> list[bool]:
        """For each flag of the last vote, whether any rank set it; ``default`` if there was no vote.

        Raises:
            CheckpointError: ranks left before the vote. The message names them, and ``step``, that of this rank.
        """
        if self._vote is None:
            return list(default)
        (work, votes), self._vote = self._vote, None
        if work is not None:
            with _connection_errors("a rank is gone"):
                self._wait_for(work, step)
        return [bool(vote) for vote in votes]

    def _wait_for(self, work: Any, step: int) -> None:
        pause, look_at = LONGEST_PAUSE / 64, time.monotonic() + LOOK_SECONDS
        while not work.is_completed():
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if time.monotonic() > look_at:
                look_at = time.monotonic() + LOOK_SECONDS
                self._look_for_ranks_that_left(step)
        work.wait()  # raises its error

    def _look_for_ranks_that_left(self, step: int) -> None:
        left: dict[int, int] = {}
        for rank in map(str, range(self.size)):
            if self._store.check([rank]):
                votes, last = map(int, self._store.get(rank).split())
                if votes < self._votes:
                    left[int(rank)] = last
        if left:
            ranks = ", ".join(f"rank {rank} closed its Checkpointer after step {left[rank]}" for rank in left)
            raise CheckpointError(
                f"{ranks}, but this rank is at step {step}",
                hint="Every rank must train the same number of steps, and close its Checkpointer after the last one.",
            )

    def send_to_all(self, document: Any) -> None:
        """From rank 0 to every other rank. Called by the saving thread.

        Neither blocks nor fails: a missing rank is noticed when it should answer.
        """
        for rank in range(1, self.size):
            with contextlib.suppress(RuntimeError):
                self._send(rank, document)

    def flush(self) -> None:
        """Block until every message has arrived at the ranks that are still there."""
        sending, self._sending = self._sending, []
        for work, _ in sending:
            with contextlib.suppress(RuntimeError):
                work.wait()

    def send_to_rank_0(self, document: Any) -> None:
        """Called by the saving thread."""
        with _connection_errors("rank 0 is gone or no longer waiting"):
            self._send(0, document)
            sending, self._sending = self._sending, []
            for work, _ in sending:
                work.wait()

    def receive(self) -> Any:
        """The next message from rank 0. Called by the saving thread."""
        with _connection_errors("rank 0 is gone or no longer waiting"):
            length = self._torch.zeros(1, dtype=self._torch.int64)
            self._saving.recv([length], 0, 0).wait()
            return self._receive_payload(0, int(length))

    def receive_from_all(self) -> list[Any]:
        """On rank 0: one message from every other rank, in rank order. Called by the saving thread.

        Raises:
            CheckpointError: ranks sent nothing; the message names them.
        """
        waiting, documents, missing, late = [], [], [], False
        for rank in range(1, self.size):
            length = self._torch.zeros(1, dtype=self._torch.int64)
            try:
                waiting.append((rank, length, self._saving.recv([length], rank, 0)))
            except RuntimeError:
                missing.append(rank)
        deadline = time.monotonic() + TIMEOUT
        # Even if a rank is missing, receive from all others, so that none is left blocked in a send.
        for rank, length, work in waiting:
            try:
                work.wait(timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
                if not late:  # a timeout closes all connections
                    documents.append(self._receive_payload(rank, int(length)))
            except RuntimeError:
                missing.append(rank)
                late |= time.monotonic() >= deadline
        if missing:
            names = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, sorted(missing)))}"
            what = f"did not save within {TIMEOUT:.0f} seconds" if late else "ended before its part was saved"
            raise CheckpointError(
                f"{names} {what}", hint="Every rank must call save, maybe_save and restore at the same steps."
            )
        return documents

    def _send(self, rank: int, document: Any) -> None:
        payload = self._to_tensor(document)
        for tensor in (self._torch.tensor([payload.numel()]), payload):
            self._sending.append((self._saving.send([tensor], rank, 0), tensor))

    def _receive_payload(self, rank: int, length: int) -> Any:
        payload = self._torch.zeros(length, dtype=self._torch.uint8)
        self._saving.recv([payload], rank, 0).wait()
        return _from_tensor(payload)

    def _to_tensor(self, document: Any) -> Any:
        return self._torch.frombuffer(bytearray(json.dumps(document).encode()), dtype=self._torch.uint8)


def _from_tensor(payload: Any) -> Any:
    return json.loads(payload.numpy().tobytes())


def _store(dist: Any, group: Any) -> Any:
    """The part of the rendezvous store for one group, which has the same name on all ranks."""
    name = dist.distributed_c10d._world.pg_names[group]
    return dist.PrefixStore(f"cloudtrain-{name}", dist.distributed_c10d._get_default_store())


def _rank_and_size() -> tuple[int, int]:
    group = process_group()
    if group is not None:
        return group
    if environment.world_size() > 1:
        raise CheckpointError(
            f"this is one of {environment.world_size()} ranks, but torch.distributed is not initialized",
            hint="A sharded checkpoint needs torch.distributed: call init_process_group first.",
        )
    return 0, 1


@contextlib.contextmanager
def _connection_errors(what: str) -> Iterator[None]:
    """Turns the RuntimeError that torch raises for a broken connection into a CheckpointError."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0][:300]
        raise CheckpointError(f"{what}: {reason}", hint="See the output of that rank.") from error
