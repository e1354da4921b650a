"""`render` depends on its argument alone: it opens no connection, starts no process and writes no file."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from typing import Any

import boto3
import pytest
from jobs_of_platforms import CASES, resolved

from cloudtrain.platforms.registry import BUILT_IN
from cloudtrain.platforms.sagemaker import SageMakerPlatform

EFFECTS = ("socket.", "subprocess.", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.exec", "os.fork")
"""Audit events of what a pure function does not do."""


class Effect(Exception):
    """`render` had a side effect."""


watching = 0
"""The thread whose effects are refused; others may belong to a server of other tests."""


def _refuse_effects(event: str, arguments: tuple[Any, ...]) -> None:
    if watching != threading.get_ident():
        return
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if writes or event.startswith(EFFECTS):
        raise Effect(f"{event}: {arguments}")


sys.addaudithook(_refuse_effects)


def test_every_platform_is_tried() -> None:
    assert {case.split("-")[0] for case in CASES} >= set(BUILT_IN)


@pytest.mark.parametrize("name", CASES)
def test_render_has_no_side_effects(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(home))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    platform = CASES[name].platform()
    job = resolved(platform, CASES[name].fields)
    if home.exists():
        home.rmdir()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setattr(sys.modules[__name__], "watching", threading.get_ident())
        request = platform.render(job)
    assert not home.exists()
    assert request.job_name == "a-job"
    assert platform.render(job) == request


def test_an_effect_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys.modules[__name__], "watching", threading.get_ident())
    with pytest.raises(Effect, match="open"):
        (tmp_path / "file").write_text("x")
    with pytest.raises(Effect, match="socket"):
        socket.create_connection(("127.0.0.1", 1))
    monkeypatch.setattr(sys.modules[__name__], "watching", 0)


def test_the_session_was_not_called() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        platform = SageMakerPlatform(boto3.Session(region_name="us-east-1"))
        platform.render(resolved(platform, CASES["sagemaker"].fields))
    assert platform.aws._clients == {}
