"""Any rank is killed with SIGKILL at random instants; exactly the committed checkpoints survive, bit for bit."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from pure_shards import same, whole_state
from shard_ranks import started

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.format.layout import manifest_key
from cloudtrain.checkpoint.format.manifest import Manifest
from cloudtrain.checkpoint.store.catalog import Listing
from cloudtrain.storage import open_store
from cloudtrain.storage.base import Store

MOST = 40
"""The maximum number of kills, in case none has interrupted a save before."""

SIZES = (2, 3)


def run_and_kill(uri: str, size: int, victim: int, delay: float) -> tuple[int, bool]:
    """Start the ranks, kill one ``delay`` seconds after the first commit.

    Returns the last step that was reported, and whether a save of the others failed for lack of the killed rank.

    The others must fail by themselves, and soon: their saves must not wait for the killed rank.
    """
    with started("steps.py", size, "forever", uri) as ranks:
        ranks[0].wait_for("\n", timeout=120)
        time.sleep(delay)
        ranks[victim].process.kill()
        codes = [rank.process.wait(60) for rank in ranks]
        texts = [rank.text for rank in ranks]
    assert codes[victim] == -signal.SIGKILL
    assert all(code > 0 for rank, code in enumerate(codes) if rank != victim), texts
    reported = max(int(line) for text in texts for line in text.splitlines() if line.isdecimal())
    return reported, any("was not saved" in text for text in texts)


def unreferenced(store: Store) -> set[str]:
    """Objects to which no manifest refers."""
    there = Listing.of(store)
    manifests = [Manifest.from_bytes(store.read(manifest_key(step)), step) for step in there.committed]
    referenced = {entry.key for manifest in manifests for entry in manifest.objects}
    return {found.key for _, found in there.objects()} - referenced


@pytest.mark.timeout(900)  # up to a hundred ranks
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_at_random_instants(tmp_path: Path, kills: int) -> None:
    uri = (tmp_path / "checkpoints").as_uri()
    store = open_store(uri)
    instants = random.Random(0)
    cut = reported = kill = 0
    left: set[str] = set()
    while kill < kills or (not cut and kill < MOST):
        kill += 1
        size = SIZES[kill % len(SIZES)]
        before = reported
        reported, missed = run_and_kill(uri, size, instants.randrange(size), instants.uniform(0, 0.3))
        assert reported > before
        cut += missed
        checkpointer = Checkpointer(uri)
        # The kill may come between a commit and the line that reports it.
        assert checkpointer.steps()[-1] in (reported, reported + 1)
        for step in checkpointer.steps():
            checkpoint = checkpointer.restore(step)
            assert checkpoint is not None
            assert same(checkpoint.state, whole_state(step))
        left_before, left = left, unreferenced(store)
        assert not left & left_before, "the leftovers of the previous kill were not deleted"
    print(f"{kill} kills, {reported} steps, {cut} saves cut in half, none of them visible")
    assert cut, "no kill interrupted a save: the test proves nothing"
