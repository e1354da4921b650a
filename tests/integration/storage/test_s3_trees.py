from __future__ import annotations

from pathlib import Path

from cloudtrain.storage import download_tree, list_tree, open_store, upload_tree
from cloudtrain.storage.client import connection

COUNT = 1100
"""More than the 1,000 keys of one listing page and of one delete request."""


def test_many_small_files_there_and_back(s3: str, tmp_path: Path) -> None:
    store = open_store(f"s3://{s3}/data")
    files = {f"folder {number % 7}/ü{number}": str(number).encode() for number in range(COUNT)}
    for name, data in files.items():
        (tmp_path / "up" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "up" / name).write_bytes(data)
    moved: list[int] = []

    upload_tree(tmp_path / "up", store, "train", moved.append)
    assert [entry.key for entry in list_tree(store, "train")] == sorted(files)

    download_tree(store, tmp_path / "down", "train", moved.append)
    down = tmp_path / "down"
    assert {str(path.relative_to(down)): path.read_bytes() for path in down.glob("*/*")} == files
    assert sum(moved) == 2 * sum(map(len, files.values()))

    store.delete(entry.key for entry in store.list())
    assert list(store.list()) == []


def test_folder_markers(s3: str, tmp_path: Path) -> None:
    for key in ("train/", "train/empty/", "train/x"):
        connection().client.put_object(Bucket=s3, Key=key)
    store = open_store(f"s3://{s3}/train")
    download_tree(store, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "x"]
    assert (tmp_path / "empty").is_dir()
    store.delete(entry.key for entry in store.list())
    assert list(store.list()) == []
