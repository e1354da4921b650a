"""The field ``arguments`` of a job, from Python, a job file and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator, TrainingJob
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import apply_overrides, read_job_file


def arguments_of(**fields: Any) -> list[str]:
    return TrainingJob.from_dict({"entry_point": "train.py", **fields}).arguments


def test_arguments_keep_their_order_and_their_text() -> None:
    line = ["fit", "--x", "1", "--x", "2", "-vv", "", "{}", "\udce9"]
    assert arguments_of(arguments=line) == line
    assert arguments_of(arguments=["--epochs", 5, "--lr", 0.1]) == ["--epochs", "5", "--lr", "0.1"]
    assert arguments_of(arguments=None) == arguments_of(arguments=[]) == []


def test_the_estimator_takes_them() -> None:
    fields = Estimator("train.py", arguments=("--data", Path("/data"), "-vv")).prepare
    assert fields
    assert Estimator("train.py", arguments=("--data", Path("/data"))).arguments == [
        "--data",
        "/data",
    ]


YAML = """
entry_point: train.py
arguments: [fit, --lr, 1e-3, --version, 1.10, --amp, true, --n, 007, "", ~, 0x1F, '{channel.train}']
hyperparameters: {lr: 1e-3, amp: true}
inputs: {train: s3://bucket/train}
"""


def test_items_in_a_job_file_are_text_as_written(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(YAML)
    fields = read_job_file(tmp_path / "job.yaml")
    assert fields["arguments"] == [
        "fit", "--lr", "1e-3", "--version", "1.10", "--amp", "true", "--n", "007", "", "~", "0x1F", "{channel.train}",
    ]  # fmt: skip
    assert fields["hyperparameters"] == {"lr": 0.001, "amp": True}
    assert TrainingJob.from_dict(fields).arguments == fields["arguments"]


def test_a_json_file_and_set_keep_text_too(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"entry_point": "train.py", "arguments": ["--n", 1.10, true]}')
    assert read_job_file(tmp_path / "job.json")["arguments"] == ["--n", "1.10", "true"]
    changed = apply_overrides({"arguments": ["a"]}, ["arguments=[--lr, 1e-3, no]", "hyperparameters.x=1e-3"])
    assert changed == {"arguments": ["--lr", "1e-3", "no"], "hyperparameters": {"x": 0.001}}


REFUSED = {
    "string": (
        {"arguments": "--epochs 5 --name 'a b'"},
        "arguments: expected a list of strings, got a string",
        '["--epochs", "5", "--name", "a b"]',
    ),
    "mapping": (
        {"arguments": ["--data", {"channel.train": None}]},
        r"arguments\[1\]: expected a string, got a mapping",
        '"{channel.train}"',
    ),
    "null": ({"arguments": ["a", None]}, r"arguments\[1\]: expected text, got nothing", ""),
    "bool": ({"arguments": [True]}, r"arguments\[0\]: expected text, got true", ""),
    "nul": ({"arguments": ["a", "b\0c"]}, r"arguments\[1\] contains a NUL character", ""),
    "surrogate": ({"arguments": ["\ud800"]}, r"arguments\[0\] is not text", ""),
    "long": ({"arguments": ["x" * 131_072]}, r"arguments\[0\] has 131,072 bytes; .* at most 131,071", "file"),
    "total": ({"arguments": ["x" * 130_000] * 9}, "arguments: have 1,170,009 bytes", "file"),
    "channel": (
        {"arguments": ["--data={channel.trian}"], "inputs": {"train": "s3://b/t", "test": "s3://b/e"}},
        r"arguments\[0\]: the job has no channel 'trian', which \{channel.trian\} refers to",
        "Its channels: test, train. For the text {channel.trian}, write {{channel.trian}}.",
    ),
    "no-channel": (
        {"arguments": ["{channel.train}"]},
        "the job has no channel 'train'",
        "It has no inputs. ",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    fields, message, hint = REFUSED[case]
    with pytest.raises(InvalidJob, match=message) as caught:
        arguments_of(**fields)
    assert hint in caught.value.hint


def test_the_channel_of_the_model_counts_and_doubled_braces_do_not() -> None:
    line = ["{channel.model}", "{{channel.other}}"]
    assert arguments_of(arguments=line, model_uri="s3://bucket/model") == line


def test_a_model_dir_is_given_once() -> None:
    with pytest.raises(InvalidJob, match=r"model_dir: hyperparameters\.model_dir is set too"):
        arguments_of(model_dir="/opt/ml/model", hyperparameters={"model_dir": "s3://bucket/model"})
