"""Which host gives which output, and which files differ between hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from cloudtrain.runtime.outputs.merge import Merge, differing_message, from_ranges, to_ranges

FOLDER = ("folder", None)


def planned(files: Mapping[str, Mapping[str, tuple[str, object]]]) -> Merge:
    merge = Merge(files)
    for host, listed in files.items():
        merge.add_files(host, [("model", path, *what) for path, what in listed.items()])
    return merge


def given(files: Mapping[str, Mapping[str, tuple[str, object]]]) -> dict[str, list[str]]:
    """The paths that each host gives."""
    shares = planned(files).plan()
    return {host: [list(files[host])[index] for index in share.give] for host, share in shares.items()}


def test_the_first_host_that_has_a_file_gives_it() -> None:
    weights = ("file", 7)
    assert given(
        {
            "algo-1": {"a": weights},
            "algo-2": {"a": weights, "b": weights},
            "algo-3": {"a": weights, "b": weights, "c": weights},
        }
    ) == {"algo-1": ["a"], "algo-2": ["b"], "algo-3": ["c"]}


def test_folders_are_merged() -> None:
    weights = ("file", 7)
    assert given(
        {"algo-1": {"d": FOLDER, "d/a": weights}, "algo-2": {"d": FOLDER, "d/b": weights, "e": FOLDER}}
    ) == {"algo-1": ["d", "d/a"], "algo-2": ["d/b", "e"]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": ("file", 7)}, {"a": FOLDER, "a/b": ("file", 7), "a/c": ("file", 7)}),
        ({"a": ("file", 7)}, {"a/b": ("file", 7)}),
        ({"a": FOLDER, "a/b": ("file", 7)}, {"a": ("file", 7)}),
        ({"a/b": ("file", 7)}, {"a": ("file", 7)}),
        ({"a": ("link", "b")}, {"a": ("link", "c")}),
        ({"a": ("link", "b")}, {"a": FOLDER, "a/b": ("file", 7)}),
        ({"a": ("file", 7)}, {"a": ("file", 8)}),
    ],
    ids=[
        "file and folder",
        "file and folder that is not listed",
        "folder and file",
        "folder that is not listed, and file",
        "links with different targets",
        "link and folder",
        "different sizes",
    ],
)
def test_files_that_cannot_be_merged_are_from_the_first_host(
    first: Mapping[str, tuple[str, object]], second: Mapping[str, tuple[str, object]]
) -> None:
    files = {"algo-1": first, "algo-2": second}
    assert given(files) == {"algo-1": list(first), "algo-2": []}
    merge = planned(files)
    merge.plan()
    assert merge.differing() == ["model/a"]


@pytest.mark.parametrize(
    ("digests", "differing"),
    [
        (("1", "1", "1"), []),
        (("1", "2", "1"), ["model/a"]),
        (("1", "1", "2"), ["model/a"]),
    ],
)
def test_files_of_equal_size_are_compared_by_hash(digests: Sequence[str], differing: list[str]) -> None:
    hosts = ("algo-1", "algo-2", "algo-3")
    merge = planned({host: {host: ("file", 7), "z/a": ("file", 1), "a": ("file", 7)} for host in hosts})
    shares = merge.plan()
    assert [shares[host].compare for host in hosts] == [[1, 2]] * 3
    for host, digest in zip(hosts, digests, strict=True):
        merge.add_digests(host, ["same", digest])
    assert merge.differing() == differing
    assert merge.givers() == {"model": list(hosts)}


def test_a_host_that_sends_too_few_hashes_ends_nothing() -> None:
    merge = planned({"algo-1": {"a": ("file", 7)}, "algo-2": {"a": ("file", 7)}})
    merge.plan()
    merge.add_digests("algo-1", ["1"])
    assert merge.differing() == ["model/a"]


def test_a_file_that_one_host_has_is_not_hashed() -> None:
    shares = planned({"algo-1": {"a": ("file", 7)}, "algo-2": {"b": ("file", 7)}}).plan()
    assert [share.compare for share in shares.values()] == [[], []]


def test_the_model_and_the_other_outputs_do_not_mix() -> None:
    merge = Merge(["algo-1", "algo-2"])
    merge.add_files("algo-1", [("model", "a", "file", 1)])
    merge.add_files("algo-2", [("output", "a", "file", 2)])
    merge.plan()
    assert merge.givers() == {"model": ["algo-1"], "output": ["algo-2"]}
    assert merge.differing() == []


def test_a_warning_names_a_few_files() -> None:
    names = [f"model/{number}" for number in range(7)]
    assert differing_message(names[:1], "algo-1").startswith("model/0 differs between hosts: ")
    assert "the leader, algo-1" in differing_message(names, "algo-1")
    assert "model/4 and 2 more differ between hosts" in differing_message(names, "algo-1")


def test_a_warning_shows_no_control_characters() -> None:
    merge = planned({"algo-1": {"\x1b[2J": ("file", 1)}, "algo-2": {"\x1b[2J": ("file", 2)}})
    merge.plan()
    assert merge.differing() == [r"'model/\x1b[2J'"]


@pytest.mark.parametrize("numbers", [[], [0], [0, 1, 2], [1, 3, 4, 9]])
def test_ranges(numbers: list[int]) -> None:
    assert from_ranges(to_ranges(numbers), 1 + max(numbers, default=0)) == numbers
    assert len(to_ranges(list(range(1000)))) == 1
