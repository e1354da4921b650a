"""The warning, at submit, that a script needs a framework which is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cloudtrain.platforms.local.absent_frameworks import absent_frameworks, has_module
from cloudtrain.submission import prepare

TRY = b"try:\n    import torch\nexcept ImportError:\n    torch = None\n"


def absent(installed: str = "", **files: bytes) -> list[str]:
    """``files`` by names in which two underscores mean a dot."""
    named = {name.replace("__", "."): text for name, text in files.items()}
    return absent_frameworks(named, "train.py", installed.split().__contains__)


def test_what_the_script_and_its_own_modules_import() -> None:
    assert absent(train__py=b"import os, torch\nfrom sklearn.svm import SVC") == ["sklearn", "torch"]
    assert absent("torch", train__py=b"import torch, sklearn") == ["sklearn"]
    assert absent(train__py=b"import net", net__py=b"import jax") == ["jax"]
    assert absent(train__py=b"import cloudtrain.distributed.torch as hvd") == ["torch"]
    assert absent("keras", train__py=b"import horovod.keras as hvd") == ["tensorflow"]


def test_what_is_optional_or_installed_by_the_job_or_not_imported() -> None:
    assert absent(train__py=TRY) == []
    assert absent(train__py=b"import torch", requirements__txt=b"torch>=2.4\n") == []
    assert absent(train__py=b"import torch", pyproject__toml=b"") == []
    assert absent(train__py=b"print('torch')", other__py=b"import torch") == []
    assert absent(train__py=b"import torch", torch__py=b"") == []
    assert absent(train__py=b"import net", net__py=b"import torch oh") == []


def test_a_look_imports_nothing() -> None:
    assert has_module("this") and "this" not in sys.modules
    assert not has_module("no_such_framework")


@pytest.mark.skipif(
    has_module("mxnet") or has_module("deepspeed"), reason="the tests' own Python has one of the two"
)
def test_the_missing_packages_are_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import mxnet, deepspeed\n")
    fields = {"entry_point": str(script), "platform": "local"}
    [warning] = prepare(fields, defaults={}).job_warnings
    assert warning == (
        f"train.py needs deepspeed, mxnet, which {sys.executable} does not have: install them ({sys.executable} -m pip "
        "install deepspeed mxnet), or name them in the source's requirements.txt"
    )
    elsewhere = {**fields, "environment": {"PYTHONPATH": "/opt/frameworks"}}
    assert prepare(elsewhere, defaults={}).job_warnings == []
