"""The package's old path works for one more version."""

from __future__ import annotations

import pytest

from cloudtrain.images import find_flavour


def test_the_old_path_warns_and_gives_the_same_names() -> None:
    with pytest.warns(DeprecationWarning, match=r"cloudtrain\.images"):
        from cloudtrain.platforms.images import find_flavour as old

    assert old is find_flavour
