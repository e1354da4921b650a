"""The accessors and build queries that all frameworks share."""

from __future__ import annotations

import inspect
import pickle
from types import ModuleType

import pytest

import cloudtrain.distributed.numpy
import cloudtrain.distributed.torch
from cloudtrain.distributed import NotInitialized, World
from cloudtrain.distributed._api import WorldAccessors

FRAMEWORKS = [cloudtrain.distributed.numpy, cloudtrain.distributed.torch]
NAMES = ["rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous"]


@pytest.mark.parametrize("hvd", FRAMEWORKS, ids=lambda hvd: hvd.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_exported_accessors(hvd: ModuleType, name: str) -> None:
    accessor = getattr(hvd, name)
    assert accessor.__name__ == name
    assert accessor.__doc__
    assert not inspect.signature(accessor).parameters
    with pytest.raises(NotInitialized):
        accessor()
    with pytest.raises(NotInitialized):  # data loaders send functions to other processes
        pickle.loads(pickle.dumps(accessor))()


def test_values() -> None:
    accessors = WorldAccessors(lambda: World(5, 8, 1, 4, 1, 2))
    assert [getattr(accessors, name)() for name in NAMES] == [5, 8, 1, 4, 1, 2, True]
    assert not WorldAccessors(lambda: World(5, 7, 1, 4, 1, 2)).is_homogeneous()
