"""The differences between two requests."""

from __future__ import annotations

from typing import Any

import pytest

from cloudtrain.platforms import Change, Request, changes

CHANNEL = {"ChannelName": "train", "InputMode": "File"}
OTHER = {"ChannelName": "test", "InputMode": "File"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, [Change("a.c", 2, 3)]),
        ({}, {"a": {"b": "x"}}, [Change("a.b", None, "x")]),
        ({"a": {"b": "x"}}, {}, [Change("a.b", "x", None)]),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, [Change("a", [1, 2], [1, 2, 3])]),
        # lists of named things, in any order
        ({"in": [CHANNEL, OTHER]}, {"in": [OTHER, CHANNEL]}, []),
        (
            {"in": [CHANNEL]},
            {"in": [{**CHANNEL, "InputMode": "Pipe"}]},
            [Change("in[train].InputMode", "File", "Pipe")],
        ),
        ({"tags": [{"Key": "k", "Value": "1"}]}, {"tags": [{"Key": "k"}]}, [Change("tags[k].Value", "1", None)]),
        # defaults that a platform fills in
        ({"isolated": False, "compression": "None", "kms": "", "tags": []}, {}, []),
        ({"isolated": False}, {"isolated": True}, [Change("isolated", None, True)]),
        # the job's name is none
        ({"name": "job-old", "out": "s3://b/job-old/x"}, {"name": "job-new", "out": "s3://b/job-new/x"}, []),
        ({"out": "s3://b/job-old"}, {"out": "s3://c/job-new"}, [Change("out", "s3://b/job-old", "s3://c/job-new")]),
        ({"base": "job-old"}, {"base": "job-old"}, []),
    ],
)  # fmt: skip
def test_changes(old: dict[str, Any], new: dict[str, Any], expected: list[Change]) -> None:
    assert changes(Request("p", "job-old", old), Request("p", "job-new", new)) == expected
