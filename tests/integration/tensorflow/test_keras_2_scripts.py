"""Scripts for Keras 2: they run on tf_keras, and fail on Keras 3 with a hint that names it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from printed import printed_sections

import cloudtrain
from cloudtrain.runtime.diagnose.rank_exit import RankExit
from cloudtrain.runtime.diagnose.ranks import diagnose

PROGRAM = Path(__file__).parent / "programs/keras_2_script.py"
LIBRARY = Path(cloudtrain.__file__).parent
CALLS = ["variables", "experimental_run_tf_function", "legacy_optimizer", "fit_generator"]


@functools.cache
def outputs(python: str, legacy: str) -> dict[str, tuple[str, ...]]:
    """The lines that each call printed."""
    path = f"{LIBRARY.parent}:{LIBRARY / 'alias'}"
    return printed_sections(python, PROGRAM, env={"PYTHONPATH": path, "TF_USE_LEGACY_KERAS": legacy})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("call", CALLS)
def test_a_keras_2_script_runs_on_tf_keras(warm_tensorflow: str, call: str) -> None:
    assert outputs(warm_tensorflow, "1")[call][-1] == "it ran"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("call", CALLS)
def test_the_report_on_keras_3_names_tf_keras(warm_tensorflow: str, call: str) -> None:
    report = diagnose(RankExit(0, 1, 1.0, None, outputs(warm_tensorflow, "0")[call]), "algo-1")
    assert "TF_USE_LEGACY_KERAS=1" in report.hint
    assert "tf_keras" in report.hint


def test_lr_has_to_be_renamed(warm_tensorflow: str) -> None:
    """tf_keras is not the remedy: its optimizers warn about ``lr`` and use their default learning rate."""
    report = diagnose(RankExit(0, 1, 1.0, None, outputs(warm_tensorflow, "0")["learning_rate"]), "algo-1")
    assert "Rename lr to learning_rate" in report.hint
