"""The index of jobs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudtrain.errors import StorageError
from cloudtrain.index import IndexEntry, _database, add_job, find_job, list_jobs, remove_job
from cloudtrain.storage import state_home


def test_an_added_job_is_found_until_it_is_removed() -> None:
    old, new = IndexEntry("a", "local", 1.0), IndexEntry("a", "other", 2.0)
    assert [add_job(old), add_job(new), add_job(old)] == [True, True, False]
    assert find_job("a") == new
    assert list_jobs() == [new, old]
    remove_job(new)
    assert find_job("a") == old
    assert find_job("b") is None


def test_many_at_the_same_time() -> None:
    entries = [IndexEntry(f"job-{number}", "local", float(number)) for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(add_job, entries))
    assert list_jobs() == entries[::-1]


def damage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


@pytest.mark.parametrize("spoil", [damage, Path.mkdir])
def test_a_file_that_cannot_be_used(spoil: Callable[[Path], object]) -> None:
    path = state_home() / "index.db"
    spoil(path)
    with pytest.raises(StorageError, match=rf"{path} cannot be used: .*\n  Remove it"):
        list_jobs()


def test_a_full_disk() -> None:
    with pytest.raises(StorageError, match=r"disk is full\n  Free space in "), _database() as database:
        database.execute("PRAGMA max_page_count = 3")
        database.execute("CREATE TABLE large AS SELECT zeroblob(1000000)")
