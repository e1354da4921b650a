"""Job files are read strictly; errors give line and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import parse_yaml, read_job_file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lr: 1e-3", {"lr": 0.001}),
        ("lr: -1E5", {"lr": -1e5}),
        ("lr: 1.5e3", {"lr": 1500.0}),
        ("version: e1", {"version": "e1"}),
        ("country: no", {"country": "no"}),
        ("flag: true", {"flag": True}),
        ("date: 2024-01-01", {"date": "2024-01-01"}),
        ("n: 010", {"n": "010"}),
        ("n: [1, -2, 0x1f, 1_000, 1:30]", {"n": [1, -2, 31, "1_000", "1:30"]}),
        ("x: [.5, 1., .inf, 5.0]", {"x": [0.5, 1.0, float("inf"), 5.0]}),
        ("x: null", {"x": None}),
        ('{"a": [1, 2.5, "x"]}', {"a": [1, 2.5, "x"]}),
        ("base: &b {x: 1}\nd: {<<: *b, y: 2}", {"base": {"x": 1}, "d": {"x": 1, "y": 2}}),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert parse_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", r"job.yaml, line 3, column 1: duplicate key 'a'"),
        ("a: {b: 1, b: 2}", r"job.yaml, line 1, column 11: duplicate key 'b'"),
        ("a:\n\tb: 1", r"job.yaml, line 2, column 1: .*\n  Indent with spaces: YAML does not allow tabs"),
        ("a: [1", r"job.yaml, line 2, column 1: "),
        ("a: b: c", r"job.yaml, line 1, column 5: mapping values are not allowed"),
        ("a: !!python/object:os.system x", r"job.yaml, line 1, column 4: could not determine a constructor"),
        ("? [1]\n: 2", r"job.yaml, line 1, column 3: found unhashable key"),
        ("a: \x00", r"job.yaml: "),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        parse_yaml(text, "job.yaml")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "entry_point: train.py\nsource_dir: src\ndependencies: [../lib, /abs]\n"
        "inputs: {a: data, b: s3://b/x, c: {s3_data: d, distribution: ShardedByS3Key}}"
    )
    assert read_job_file(tmp_path / "job.yaml") == {
        "entry_point": "train.py",
        "source_dir": str(tmp_path / "src"),
        "dependencies": [str(tmp_path / "../lib"), "/abs"],
        "inputs": {
            "a": (tmp_path / "data").as_uri(),
            "b": "s3://b/x",
            "c": {"s3_data": (tmp_path / "d").as_uri(), "distribution": "ShardedByS3Key"},
        },
    }


@pytest.mark.parametrize(
    ("entry_point", "expected"),
    [
        ("src/train.py", "train.py"),
        ("./src/deep/run.sh", "deep/run.sh"),
        ("train.py", "train.py"),
        ("src/both.py", "src/both.py"),
        ("nosuch.py", "nosuch.py"),
        ("other.py", "other.py"),
        ("src", "src"),
    ],
)
def test_an_entry_point_may_be_relative_to_the_file(tmp_path: Path, entry_point: str, expected: str) -> None:
    for name in ("src/train.py", "src/deep/run.sh", "src/both.py", "src/src/both.py", "other.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "job.yaml").write_text(f"entry_point: {entry_point}\nsource_dir: src")
    assert read_job_file(tmp_path / "job.yaml")["entry_point"] == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"- a", "not a mapping"),
        (b"", "job.yaml has no fields"),
        (b"\xff", "cannot be read"),
        (b"1: a", "not a mapping"),
    ],
)
def test_files_that_are_not_job_files(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidJob, match=message):
        read_job_file(path)


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ("venv/bin/python", "{folder}/venv/bin/python"),
        ("/opt/python", "/opt/python"),
        ("python3", "python3"),
        ("~/python", "~/python"),
        (3, 3),
    ],
)
def test_the_path_of_an_interpreter_is_relative_to_the_file(
    tmp_path: Path, python: object, expected: object
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"platform_options: {{python: {python}, master_port: 0}}")
    if isinstance(expected, str):
        expected = expected.format(folder=tmp_path)
    assert read_job_file(path)["platform_options"] == {"python": expected, "master_port": 0}


def test_numbers_in_variables_and_versions_stay_as_written() -> None:
    text = (
        "framework_version: 2.10\nenvironment: {A: 1.10, B: 0x1F, C: true, D: a}\nhyperparameters: {lr: 1e-3}"
    )
    assert parse_yaml(text) == {
        "framework_version": "2.10",
        "environment": {"A": "1.10", "B": "0x1F", "C": True, "D": "a"},
        "hyperparameters": {"lr": 0.001},
    }
