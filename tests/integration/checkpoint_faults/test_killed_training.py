"""A training of two ranks is killed -9 again and again: what was durable is restored, bit for bit.

`CLOUDTRAIN_KILLS` kills in all, 200 where `CI` is set and else 40: three fifths of them on S3, and a fifth in each
other place.
`CLOUDTRAIN_SEED` chooses the rounds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from end_of_run import FIGURES
from fault_places import PLACES, open_place
from fault_rounds import STORAGE, VICTIMS, play

from cloudtrain.errors import StorageError
from cloudtrain.testing._weed_options import find_weed

KILLS = int(os.environ.get("CLOUDTRAIN_KILLS") or (200 if os.environ.get("CI") else 40))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLACES)
def test_nothing_durable_is_lost(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if name != "file":
        _need_server()
    seed = int(os.environ.get("CLOUDTRAIN_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CLOUDTRAIN_SEED={seed}")
    kills = max(1, KILLS * (3 if name == "s3" else 1) // 5)
    with open_place(name, tmp_path) as place:
        figures = play(place, tmp_path, kills, seed)
    record_property(FIGURES, f"{name}, CLOUDTRAIN_SEED={seed}: {figures}")
    assert not (figures.lost or figures.torn or figures.wrong), f"CLOUDTRAIN_SEED={seed}: {figures}"
    if kills >= 5:
        assert figures.durable, "nothing was durable: the kills prove nothing"
    if kills >= 100:
        assert set(figures.kills) == set(VICTIMS)
        assert name == "file" or set(figures.storage) == set(STORAGE)


def _need_server() -> None:
    try:
        find_weed()
    except StorageError as error:
        if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
            raise
        pytest.skip(str(error))
