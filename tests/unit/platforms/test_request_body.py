"""Reading requests, also those that earlier versions wrote."""

from __future__ import annotations

from cloudtrain.contract import Settings
from cloudtrain.contract.request_body import argument_details, request_settings


def test_settings_include_the_channels() -> None:
    body = {"settings": {"job_name": "a"}, "channels": {"train": {"uri": "file:///data"}, "pipe": {}}}
    assert request_settings(body) == Settings(job_name="a", channels=(("train", "file:///data"),))


def test_settings_of_an_earlier_request_are_variables() -> None:
    body = {
        "channels": {"train": {"TrainingInputMode": "File"}},
        "environment": {
            "A": "b",
            "CLOUDTRAIN_CHECKPOINT_URI": "s3://bucket/checkpoints",
            "CLOUDTRAIN_GIT_COMMIT": "abc-dirty",
            "CLOUDTRAIN_CHANNELS": '[["train", "s3://bucket/data"]]',
            "CLOUDTRAIN_STOP_GRACE": "5.0",
        },
    }
    assert request_settings(body) == Settings(
        checkpoint_uri="s3://bucket/checkpoints",
        git_commit="abc-dirty",
        channels=(("train", "s3://bucket/data"),),
        stop_grace=5.0,
    )


def test_arguments_are_shown_on_one_line() -> None:
    assert argument_details([]) == {}
    line = ["fit", "--note", "it's\nnew", "", "\x1b[31m", "caf\udce9", "é"]
    shown = """fit --note 'it'"'"'s\\nnew' '' '\\x1b[31m' 'caf\\udce9' 'é'"""
    assert argument_details(line) == {"arguments": shown}
    long = argument_details(["x" * 1000])["arguments"]
    assert (len(long), long[-1]) == (500, "…")


def test_arguments_hide_secrets() -> None:
    line = ["--api-key", "hunter2", "--password=pw123", "--url", "https://u:pw9@h/x", "--lr", "0.1"]
    shown = argument_details(line)["arguments"]
    assert shown == "--api-key '***' '--password=***' --url '***' --lr 0.1"
