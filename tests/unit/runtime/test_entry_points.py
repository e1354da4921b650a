"""The runtime refuses an entry point that is not a program: a source that was packed elsewhere may name one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudtrain.contract import Paths
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.launchers.horovod import HorovodChoice
from cloudtrain.runtime.launchers.launch import LaunchPlan
from cloudtrain.runtime.launchers.launch_plan import make_launch_plan


def plan(folder: Path, name: str, content: bytes) -> LaunchPlan:
    paths = Paths(folder)
    paths.make()
    paths.code.mkdir(exist_ok=True)
    (paths.code / name).write_bytes(content)
    document = {"sagemaker_program": json.dumps(name)}
    (paths.input_config / "hyperparameters.json").write_text(json.dumps(document))
    return make_launch_plan(HostConfig.read(paths, {}), "python", ("127.0.0.1", 1), HorovodChoice(), {})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.ipynb", b"{}"),
        ("README.md", b"# Read me"),
        ("job.yaml", b"a: 1"),
        ("weights", b"\0\1"),
        ("Makefile", b""),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(InvalidJob, match=f"entry point {name} cannot be run: it is neither"):
        plan(tmp_path, name, content)


@pytest.mark.parametrize(
    ("name", "content", "command"),
    [
        ("train.sh", b"echo", ("--", "/bin/sh", "train.sh")),
        ("train", b"#!/bin/sh", ("--", "./train")),
        ("train.pl", b"#!/usr/bin/perl", ("--", "./train.pl")),
        ("train.bin", b"\x7fELF\0", ("--", "./train.bin")),
        ("train.py", b"", ("train.py",)),
    ],
)
def test_programs_run(tmp_path: Path, name: str, content: bytes, command: tuple[str, ...]) -> None:
    assert plan(tmp_path, name, content).rank_arguments == command
