"""A training of two ranks is killed with SIGKILL again and again; every durable save must be restored bit for bit.

Three fifths of the kills happen on S3, a fifth in each other place. The rounds are the same in every run: CI plays the
first 15, the soak the next 185. `CLOUDTRAIN_SEED` draws other rounds, `CLOUDTRAIN_KILLS` sets their number.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from end_of_run import FIGURES
from fault_places import open_place
from fault_rounds import STORAGE, VICTIMS, play

from cloudtrain.errors import StorageError
from cloudtrain.testing._weed import find_weed

SEED = 318
"""Its first 8 rounds include every victim and every fault of the storage."""
COVERING = 8
KILLS_IN_CI = 15
KILLS = 200


def kill_trainings(
    name: str, folder: Path, record_property: Callable[[str, object], None], kills: int, after: int = 0
) -> None:
    """Play ``name``'s share of ``kills`` rounds, following its share of the first ``after``."""
    if name != "file":
        _need_server()
    seed = int(os.environ.get("CLOUDTRAIN_SEED") or SEED)
    kills = int(os.environ.get("CLOUDTRAIN_KILLS") or kills)
    print(f"CLOUDTRAIN_SEED={seed}")
    share = max(1, _share(name, kills))
    with open_place(name, folder) as place:
        figures = play(place, folder, share, seed, first=_share(name, after) + 1)
    record_property(FIGURES, f"{name}, CLOUDTRAIN_SEED={seed}: {figures}")
    assert not (figures.lost or figures.torn or figures.wrong), f"CLOUDTRAIN_SEED={seed}: {figures}"
    if share >= 5:
        assert figures.durable, "nothing was durable: the kills prove nothing"
    if share >= (COVERING if seed == SEED else 100):
        assert set(figures.kills) == set(VICTIMS)
        assert name == "file" or set(figures.storage) == set(STORAGE)


def _share(name: str, kills: int) -> int:
    return kills * (3 if name == "s3" else 1) // 5


def _need_server() -> None:
    try:
        find_weed()
    except StorageError as error:
        if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
            raise
        pytest.skip(str(error))
