"""Documents that are deep, long, or multiply by aliases are refused immediately."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import TrainingJob, apply_overrides, parse_yaml, read_job_file
from cloudtrain.spec.conversion import DEEPEST, LARGEST_DOCUMENT

HOSTILE = {
    "aliases": "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)),
    "aliases of a long text": f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 1000)}]\n",
    "merged mappings": "a0: &a0 {k: [1, 2, 3, 4, 5, 6, 7, 8, 9]}\n"
    + "".join(
        f"a{n}: &a{n} {{<<: *a{n - 1}, b: *a{n - 1}, c: *a{n - 1}, d: *a{n - 1}}}\n" for n in range(1, 12)
    ),
    "a chain of aliases": "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 5000)),
    "an alias of itself": "a: &a [1, *a]\n",
    "an alias of itself as key": "&a {x: 1, y: *a}\n",
    "brackets": "[" * 100_000,
    "closed brackets": "[" * 100_000 + "]" * 100_000,
    "braces": "{a: " * 100_000,
    "dashes": "- " * 100_000,
    "questions": "? " * 100_000,
    "many values": "arguments: [" + "1, " * 200_000 + "]",
    "large": "# " + "x" * LARGEST_DOCUMENT,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_documents_are_refused_immediately(tmp_path: Path, kind: str) -> None:
    (tmp_path / "job.yaml").write_text(HOSTILE[kind])
    began = time.monotonic()
    with pytest.raises(InvalidJob) as caught:
        read_job_file(tmp_path / "job.yaml")
    assert time.monotonic() - began < 60
    assert str(tmp_path / "job.yaml") in caught.value.message and caught.value.hint
    with pytest.raises(InvalidJob):
        apply_overrides({}, [f"hyperparameters={HOSTILE[kind]}"])


def test_aliases_and_depth_within_the_bounds_are_fine() -> None:
    text = "base: &base {lr: 0.1}\none: {<<: *base, a: *base}\ntwo: *base\n"
    assert parse_yaml(text) == {
        "base": {"lr": 0.1},
        "one": {"lr": 0.1, "a": {"lr": 0.1}},
        "two": {"lr": 0.1},
    }
    deep = "[" * DEEPEST + "]" * DEEPEST
    assert str(parse_yaml(deep)) == deep


def test_a_file_without_end_is_read_only_as_far_as_a_job_file_can_go() -> None:
    with pytest.raises(InvalidJob, match="more than"):
        read_job_file(Path("/dev/zero"))


def test_deep_values_in_python_and_json_are_refused() -> None:
    deep: list[object] = []
    itself: dict[str, object] = {}
    itself["again"] = itself
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, itself):
        with pytest.raises(InvalidJob, match="hyperparameters: is nested") as caught:
            TrainingJob.from_dict({"entry_point": "train.py", "hyperparameters": {"a": value}})
        assert caught.value.hint
    with pytest.raises(InvalidJob):
        TrainingJob.from_json('{"hyperparameters": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}")
    while deep:  # not every version of Python can remove a list that deep
        deep = deep.pop()  # type: ignore[assignment]


def test_a_path_of_many_parts_is_refused() -> None:
    with pytest.raises(InvalidJob, match="--set") as caught:
        apply_overrides({}, ["a." * 100_000 + "b=1"])
    assert caught.value.hint and len(str(caught.value)) < 1000


def test_a_job_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"entry_point: train.py\nname: \xff\n")
    with pytest.raises(InvalidJob, match=r"job\.yaml cannot be read: line 2 is not UTF-8"):
        read_job_file(tmp_path / "job.yaml")
