from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cloudtrain.errors import StorageError
from cloudtrain.storage import state_home


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"CLOUDTRAIN_HOME": "{tmp}/own", "XDG_STATE_HOME": "{tmp}/xdg"}, "own"),
        ({"XDG_STATE_HOME": "{tmp}/xdg"}, "xdg/cloudtrain"),
        ({"XDG_STATE_HOME": "relative"}, "home/.local/state/cloudtrain"),
        ({}, "home/.local/state/cloudtrain"),
        ({"CLOUDTRAIN_HOME": "~/own"}, "home/own"),
    ],
)
def test_where_state_is_kept(
    environment: dict[str, str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLOUDTRAIN_HOME")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(tmp=tmp_path))

    assert state_home() == tmp_path / folder
    assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
    assert state_home() == tmp_path / folder


def test_a_file_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="CLOUDTRAIN_HOME"):
        state_home()
