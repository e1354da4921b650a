"""Metrics on SageMaker: expressions match the lines in CloudWatch, which begin with ``[rank N]``, as elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.observe import EventLog, read_events
from cloudtrain.platforms.sagemaker.metrics import LONGEST, after_prefix
from cloudtrain.runtime.metrics import MetricFinder
from cloudtrain.runtime.output import Stream, prefixed
from cloudtrain.submission import prepare

RANKS = (0, 7, 42, 1023, 12345)

# expression, line, value
ANCHORED = [
    (r"^loss=([0-9.]+)", "loss=0.5", "0.5"),
    (r"^loss=([0-9.]+)", "the loss=0.5", None),
    (r"\Aloss=([0-9.]+)$", "loss=0.5", "0.5"),
    (r"^\s*loss=([0-9.]+)", "  loss=0.5", "0.5"),
    (r"^(\d+) steps", "12 steps", "12"),
    (r"(^\d+) steps", "12 steps", "12"),
    (r"(?P<value>^\d+) steps", "12 steps", "12"),
    (r"^.*?(\d+)", "step 3 of 9", "3"),
    (r"^a=(\d)|^b=(\d)", "a=1", "1"),
    (r"^(?:a|b)=(\d)", "b=2", "2"),
    (r"(?:^|,)b=(\d)", "a=1,b=2", "2"),
    (r"(?:^|,)a=(\d)", "a=1,b=2", "1"),
    (r"(?m)^loss=(\d)", "loss=1", "1"),
    (r"(?i)^LOSS=(\d)", "loss=1", "1"),
    (r"(?i:^LOSS)=(\d)", "loss=1", "1"),
    ("(?x) ^ loss = (\\d)  # [ ( ^ the loss\n (?!\\d)", "loss=1", "1"),
    (r"(?#^ [ )^loss=(\d)", "loss=1", "1"),
    (r"(?<=^loss=)(\d)", "loss=1", "1"),
    (r"(?<=^loss=)(\d)", "a loss=1", None),
    (r"(?<!^)loss=(\d)", "loss=1", None),
    (r"(?<!^)loss=(\d)", "a loss=1", "1"),
    (r"(?=^loss)loss=(\d)", "loss=1", "1"),
    (r"(?!^eval)\w+ loss=(\d)", "train loss=1", "1"),
    (r"^(?!eval)\w+ loss=(\d)", "eval loss=1", None),
    (r"^Testing>.*Total reward=(.*?),", "Testing> x Total reward=3.5, y", "3.5"),
    (r"^[^a-z]*(\d)", "A 1", "1"),
    (r"^[]\[(]x=(\d)", "[x=1", "1"),
    (r"(?:\\\\|^)x=(\d)", "x=1", "1"),
]
UNANCHORED = [
    (r"'loss': ([0-9]+(.|e\-)[0-9]+),?", "{'loss': 0.25, 'step': 1}", "0.25"),
    (
        r"episode_reward_mean: ([-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?)",
        "episode_reward_mean: 1.5e3",
        "1.5e3",
    ),
    (r"[^a]loss=(\d)", "a loss=1", "1"),
    (r"[\^]loss=(\d)", "^loss=1", "1"),
    (r"\^loss=(\d)", "^loss=1", "1"),
    (r"[]^]loss=(\d)", "^loss=1", "1"),
    (r"loss=(\d)(?# ^ )", "loss=1", "1"),
    ("(?x) loss = (\\d)  # ^", "loss=1", "1"),
    (r"#011validation-error:(\d)$", "#011validation-error:1", "1"),
    (r"\[rank 7\] loss=(\d)", "loss=1", None),
]


def value(regex: str, line: str) -> str | None:
    match = re.search(regex, line)
    return match[1] if match else None


def in_cloudwatch(rank: int, line: str) -> str:
    return prefixed(Stream(rank, -1).prefix, [line.encode()]).decode().rstrip("\n")


@pytest.mark.parametrize(("regex", "line", "found"), ANCHORED)
def test_anchors_match_after_the_prefix(regex: str, line: str, found: str | None) -> None:
    assert value(regex, line) == found
    changed = after_prefix(regex)
    assert value(changed, line) == found  # a line of the image, for example
    assert [value(changed, in_cloudwatch(rank, line)) for rank in RANKS] == [found] * len(RANKS)


@pytest.mark.parametrize(("regex", "line", "found"), UNANCHORED)
def test_other_expressions_are_sent_as_they_are(regex: str, line: str, found: str | None) -> None:
    assert value(regex, line) == found
    assert after_prefix(regex) == regex


def test_one_rank_may_be_named_on_every_platform(tmp_path: Path) -> None:
    regex = r"^\[rank 7\] loss=(\d)"
    assert [value(after_prefix(regex), in_cloudwatch(rank, "loss=1")) for rank in (6, 7)] == [None, "1"]
    finder = MetricFinder([("loss", regex)], EventLog(tmp_path / "events", "algo-1"))
    for rank in (6, 7, None):
        finder(Stream(rank, -1), ["loss=1"])
    finder.close()
    assert [event["rank"] for event in read_events(tmp_path / "events")] == [7]


def request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, regex: str, runtime: str) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    Path("train.py").write_text("")
    return prepare(
        {
            "entry_point": "train.py",
            "job_name": "job",
            "platform": "sagemaker",
            "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/my:1",
            "instance_type": "ml.m5.xlarge",
            "role": "arn:aws:iam::123456789012:role/Train",
            "output_path": "s3://bucket/out",
            "code_location": "s3://bucket/code",
            "metric_definitions": [{"Name": "loss", "Regex": regex}],
            "runtime": runtime,
        }
    ).request.body


def test_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The toolkit prints lines without a prefix: its requests are the SDK's."""
    found = {
        runtime: request(monkeypatch, tmp_path, "^loss=(.*)", runtime)["AlgorithmSpecification"][
            "MetricDefinitions"
        ]
        for runtime in ("cloudtrain", "toolkit")
    }
    assert found == {
        "cloudtrain": [{"Name": "loss", "Regex": r"^(?:\[rank\s\d+\]\s)?loss=(.*)"}],
        "toolkit": [{"Name": "loss", "Regex": "^loss=(.*)"}],
    }


def test_an_expression_that_becomes_too_long_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    regex = "^loss=(.*)" + "x" * (LONGEST - 10)
    request(monkeypatch, tmp_path, regex, "toolkit")
    with pytest.raises(InvalidJob, match=r"metric_definitions\[0\].Regex: has 52\d characters") as caught:
        request(monkeypatch, tmp_path, regex, "cloudtrain")
    assert caught.value.hint == "Leave ^ out, or shorten the expression."
