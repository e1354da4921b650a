"""Deprecated names of the package."""

from __future__ import annotations

import pytest

from cloudtrain import storage


def test_entry_is_object_info() -> None:
    with pytest.warns(DeprecationWarning, match="use cloudtrain.storage.ObjectInfo") as caught:
        assert storage.Entry is storage.ObjectInfo
    assert caught[0].filename == __file__
