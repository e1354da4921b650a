"""The script's command line: arguments that arrive unchanged, and the spelling of hyperparameters."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import (
    Paths,
    decode_arguments,
    decode_hyperparameters,
    encode_arguments,
    encode_hyperparameters,
    expand,
    host_hyperparameters,
    placeholder_channels,
    to_arguments,
)

AWKWARD = [
    "--flag", "--x", "1", "--x", "2", "-vv", "--k=v", "positional", "", "--", "007", "1e-3", "a b", "it's \"q\"; $(x)",
    "line\nfeed\r\nreturn\r", "\ttab ", "é 日本 😀", "db.host=[1,2]", "+x@y=z", '{"json": [1]}', "null", "\\", "-",
]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [""],
        AWKWARD,
        ["x" * 131_071, "", "y"],
        ["5"] * 3000,
        ["1" * 2488, "23", "45"],  # a piece that is a number by itself
        ["é" * 9999, "\\" * 5000, '"' * 5000, " " * 5000],
        [os.fsdecode(b"caf\xe9.csv")],
    ],
)
def test_arguments_survive_the_values_of_hyperparameters(arguments: list[str]) -> None:
    encoded = encode_arguments(arguments)
    assert all(len(text) <= 2500 and text.isascii() and text.isprintable() for text in encoded.values())
    others = encode_hyperparameters({"lr": 0.1, "sagemaker_program": "train.py"})
    document = json.loads(json.dumps({**others, **encoded}, sort_keys=True))
    assert decode_arguments(document) == tuple(arguments)
    assert decode_hyperparameters(document) == {"lr": 0.1, "sagemaker_program": "train.py"}


def test_a_short_line_is_readable_in_the_request() -> None:
    assert encode_arguments(["--epochs", "5"]) == {"sagemaker_arguments": '["--epochs", "5"]'}


def test_a_missing_piece_is_noticed() -> None:
    encoded = encode_arguments(["x" * 6000])
    del encoded["sagemaker_arguments_2"]
    for damaged in (encoded, {"sagemaker_arguments": "5"}, {"sagemaker_arguments": "[5]"}):
        with pytest.raises(ValueError, match="sagemaker_arguments is damaged"):
            decode_arguments(damaged)


@pytest.mark.parametrize(
    ("argument", "expanded", "channels"),
    [
        ("{channel.train}", "/ml/input/data/train", ["train"]),
        ("--data={channel.a-b.c}/x.csv", "--data=/ml/input/data/a-b.c/x.csv", ["a-b.c"]),
        ("{channel.a}:{channel.b}", "/ml/input/data/a:/ml/input/data/b", ["a", "b"]),
        (
            '{"in": {"dir": "{channel.a}"}}',
            '{"in": {"dir": "/ml/input/data/a"}}',
            ["a"],
        ),
        ("{model_dir}", "/ml/model", []),
        ("{output_data_dir}/x", "/ml/output/data/x", []),
        ("{checkpoint_dir}", "/ml/checkpoints", []),
        ("{{channel.train}}", "{channel.train}", []),
        ("{{{model_dir}}}", "{{model_dir}}", []),
        ("{epoch:02d} {} {{ }} {channel} {channel.} {{x}} ${model}", None, []),
        ('{"lr": 0.1}', None, []),
    ],
)
def test_placeholders_become_folders(argument: str, expanded: str | None, channels: list[str]) -> None:
    assert expand([argument], Paths(Path("/ml"))) == [argument if expanded is None else expanded]
    assert placeholder_channels(argument) == channels


SPELLINGS: list[tuple[Any, str]] = [
    (1, "1"),
    (0.001, "0.001"),
    (1e-07, "1e-07"),
    (2.0, "2.0"),
    (10**20, "100000000000000000000"),
    (True, "True"),
    (False, "False"),
    (None, ""),
    ("", ""),
    ("1.10", "1.10"),
    ("true", "true"),
    ('it\'s "q"; $(x)', 'it\'s "q"; $(x)'),
    ("é\n", "é\n"),
    ([1, "x", None, True, 0.5], "[1, 'x', None, True, 0.5]"),
    ([[1], {"k": "v"}], "[[1], {'k': 'v'}]"),
    ([], "[]"),
    (["it's", '"q"', "é\n"], "[\"it's\", '\"q\"', 'é\\n']"),
    ({"b": 2, "a": 1}, "a=1,b=2"),
    ({"a": {"x": [1, "y"]}, "n": None, "t": True, "s": "é"}, "a={'x': [1, 'y']},n=None,s=é,t=True"),
    ({}, ""),
]
"""Values, and what ``sagemaker_training.mapping.to_cmd_args`` of version 5.1.4 makes of them."""


@pytest.mark.parametrize(("value", "spelled"), SPELLINGS)
def test_hyperparameters_are_spelled_as_by_the_toolkit(value: Any, spelled: str) -> None:
    read = decode_hyperparameters(encode_hyperparameters({"value": value}))
    assert to_arguments(read) == ["--value", spelled]


def test_hyperparameters_are_spelled_as_json_on_request() -> None:
    values = {"t": True, "none": None, "list": [1, "x"], "map": {"a": 1}, "text": "True"}
    assert to_arguments(values, as_json=True) == [
        "--list", '[1, "x"]', "--map", '{"a": 1}', "--none", "null", "-t", "true", "--text", "True",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/opt/ml/model", "/jobs/a/ml/model"),
        ("/opt/ml", "/jobs/a/ml"),
        ("/opt/mlx", "/opt/mlx"),
        ("s3://bucket/opt/ml/model", "s3://bucket/opt/ml/model"),
        (5, 5),
    ],
)
def test_a_model_dir_is_below_the_base_of_its_host(given: Any, expected: Any) -> None:
    encoded = encode_hyperparameters({"model_dir": given, "other": "/opt/ml/model"})
    assert host_hyperparameters(encoded, Paths(Path("/jobs/a/ml"))) == {
        "model_dir": expected,
        "other": "/opt/ml/model",
    }
