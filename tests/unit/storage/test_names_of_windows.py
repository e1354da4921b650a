"""Paths and names of Windows: in URIs, and in keys that are downloaded there."""

from __future__ import annotations

import ntpath
import re
from pathlib import PureWindowsPath
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given, strategies as st

from cloudtrain._system.paths import unusable_on_windows, without_slash
from cloudtrain.errors import StorageError
from cloudtrain.storage import join_uri, split_uri


@pytest.mark.parametrize("path", [r"C:\data\a b", r"d:\größe", "C:\\"])
def test_the_uri_of_a_path_leads_back_to_it(path: str) -> None:
    uri = PureWindowsPath(path).as_uri()
    assert PureWindowsPath(without_slash(unquote(urlsplit(uri).path))) == PureWindowsPath(path)


def test_uris_are_joined_and_split_as_text() -> None:
    home = PureWindowsPath(r"C:\Users\me\jobs").as_uri()
    assert join_uri(home, "a-job", "größe") == "file:///C:/Users/me/jobs/a-job/gr%C3%B6%C3%9Fe"
    assert split_uri(f"{home}/a%20b") == (home, "a b")
    assert split_uri("file:///model") == ("file:///", "model")
    with pytest.raises(StorageError, match="names no object"):
        split_uri("file:///")


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("..\\..\\outside", "'\\\\\\\\'"),
        ("steps/12:30", "':'"),
        ("C:", "':'"),
        ("what?", "'\\?'"),
        ("data/NUL", "NUL is the name of a device"),
        ("com1.txt", "com1.txt is the name of a device"),
        ("a./b", "a dot or space"),
        ("a ", "a dot or space"),
        ("line\nbreak", r"'\\n'"),
    ],
)
def test_a_key_that_windows_cannot_store_is_refused(key: str, why: str) -> None:
    assert re.search(why, unusable_on_windows(key))


@given(st.lists(st.text(min_size=1).filter(lambda part: "/" not in part), min_size=1, max_size=3))
def test_every_other_key_stays_below_its_folder(parts: list[str]) -> None:
    key = "/".join(parts)
    if unusable_on_windows(key):
        return
    path = PureWindowsPath(r"C:\folder", *key.split("/"))
    assert path.parts[:2] == ("C:\\", "folder")
    assert list(path.parts[2:]) == parts
    assert ntpath.normpath(path).startswith("C:\\folder\\")
