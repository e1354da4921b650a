from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cloudtrain.errors import StorageError
from cloudtrain.storage import FileStore, S3Store, join_uri, open_store, split_uri, uri_to_path
from cloudtrain.storage.uri import split_bucket_uri


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///data/digits", "/data/digits"),
        ("file://localhost/data", "/data"),
        ("file:///with%20blank/%C3%A9", "/with blank/é"),
        ("file:///a%23b%3Fc%25", "/a#b?c%"),
        ("file:///", "/"),
    ],
)
def test_a_file_uri_names_a_path(uri: str, path: str) -> None:
    assert uri_to_path(uri) == Path(path)


@pytest.mark.parametrize("name", ["plain", "a b", "100%", "ü/é", "a#b?c", "%20", os.fsdecode(b"\xff")])
def test_every_path_survives_as_uri(name: str, tmp_path: Path) -> None:
    assert FileStore(uri_to_path((tmp_path / name).as_uri())).folder == tmp_path / name


@pytest.mark.parametrize(
    ("uri", "bucket", "key"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://bucket/a/b/", "bucket", "a/b"),
        ("s3://bucket/100%25 é?#", "bucket", "100%25 é?#"),
    ],
)
def test_an_s3_uri_is_bucket_and_key(uri: str, bucket: str, key: str) -> None:
    assert split_bucket_uri(uri) == (bucket, key)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("az://bucket/x", "Known: file://, s3://, gs://"),
        ("S3://bucket/x", "Known: file://, s3://, gs://"),
        ("/data/digits", "file:///data/digits"),
        ("", "not a URI"),
        ("file://data/digits", "file:///"),
        ("file://", "file:///"),
        ("file:///a?b", "%3F"),
        ("file:///a%00b", "no absolute path"),
        ("s3://", "s3://bucket/prefix"),
        ("s3:///key", "s3://bucket/prefix"),
        ("s3://buc ket/key", "s3://bucket/prefix"),
        ("s3://bucket//key", "single slashes"),
        ("s3://bucket/a/../b", "single slashes"),
    ],
)
def test_the_error_for_a_wrong_uri_suggests_a_right_one(uri: str, says: str) -> None:
    with pytest.raises(StorageError) as raised:
        open_store(uri)
    assert says in str(raised.value)
    assert repr(uri) in raised.value.message or uri in raised.value.message


def test_the_scheme_selects_the_store() -> None:
    assert isinstance(open_store("file:///data"), FileStore)
    assert isinstance(open_store("s3://bucket/data"), S3Store)


@pytest.mark.parametrize(
    ("uri", "parts", "joined"),
    [
        ("s3://bucket", ["a", "b/c"], "s3://bucket/a/b/c"),
        ("s3://bucket/out/", ["a b%"], "s3://bucket/out/a b%"),
        ("file:///out", ["a b%", "c"], "file:///out/a%20b%25/c"),
        ("file:///", ["a"], "file:///a"),
    ],
)
def test_join(uri: str, parts: list[str], joined: str) -> None:
    assert join_uri(uri, *parts) == joined


@pytest.mark.parametrize("part", ["", "/etc", "../x", "a/./b", "a//b", "a\0b", "\udcff"])
def test_join_does_not_lead_outside_the_uri(part: str) -> None:
    with pytest.raises(StorageError):
        join_uri("s3://bucket", part)


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("s3://bucket/a/b.gz", ("s3://bucket/a", "b.gz")),
        ("s3://bucket/b.gz", ("s3://bucket", "b.gz")),
        ("file:///a%20b/c%20d", ("file:///a%20b", "c d")),
    ],
)
def test_split_is_folder_and_name(uri: str, parts: tuple[str, str]) -> None:
    assert split_uri(uri) == parts
    assert join_uri(*parts) == uri


@pytest.mark.parametrize("uri", ["s3://bucket", "s3://bucket/", "file:///"])
def test_a_uri_without_an_object_cannot_be_split(uri: str) -> None:
    with pytest.raises(StorageError, match="names no object"):
        split_uri(uri)


def test_google_cloud_storage_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google", None)
    with pytest.raises(StorageError, match="gs:// needs google-cloud-storage") as caught:
        open_store("gs://bucket/x")
    assert caught.value.hint == "Install google-cloud-storage: on this machine, or in the image of the job."
