"""Horovod's environment variables, and autotuning of the bucket size."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from cloudtrain.distributed import InvalidArgument, options
from cloudtrain.distributed.torch._gradients.autotune import SIZES, STEPS, WARM_UP_STEPS, Autotuner

READ: dict[str, tuple[Callable[[dict[str, str]], Any], dict[str, str], Any]] = {
    "threshold": (options.fusion_threshold, {}, 25 << 20),
    "threshold-set": (options.fusion_threshold, {"HOROVOD_FUSION_THRESHOLD": "33554432"}, 33554432),
    "no-fusion": (options.fusion_threshold, {"HOROVOD_FUSION_THRESHOLD": "0"}, 0),
    "cycle": (options.cycle_seconds, {}, 0.001),
    "cycle-set": (options.cycle_seconds, {"HOROVOD_CYCLE_TIME": "3.5"}, 0.0035),
    "autotune": (options.autotunes, {"HOROVOD_AUTOTUNE": "1"}, True),
    "no-autotune": (options.autotunes, {"HOROVOD_AUTOTUNE": "0"}, False),
    "fixed": (options.autotunes, {"HOROVOD_AUTOTUNE": "1", "HOROVOD_FUSION_THRESHOLD": "1"}, False),
    "shutdown": (options.collective_timeout, {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9"}, 9),
    "no-shutdown": (options.collective_timeout, {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "0"}, 1800),
    "own-first": (
        options.collective_timeout,
        {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9", "CLOUDTRAIN_COLLECTIVE_TIMEOUT": "4"},
        4,
    ),
    "no-check-no-shutdown": (
        options.collective_timeout,
        {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9", "HOROVOD_STALL_CHECK_DISABLE": "1"},
        1800,
    ),
    "no-warning": (options.warn_after, {"HOROVOD_STALL_CHECK_DISABLE": "1"}, float("inf")),
    "own-warning": (
        options.warn_after,
        {"HOROVOD_STALL_CHECK_DISABLE": "1", "CLOUDTRAIN_STALL_WARNING": "3"},
        3,
    ),
}


@pytest.mark.parametrize(("read", "environ", "value"), READ.values(), ids=READ)
def test_variables(read: Callable[[dict[str, str]], Any], environ: dict[str, str], value: Any) -> None:
    assert read(environ) == value


@pytest.mark.parametrize("text", ["much", "-1", "nan", "inf"])
def test_invalid_numbers(text: str) -> None:
    with pytest.raises(InvalidArgument, match="HOROVOD_FUSION_THRESHOLD="):
        options.fusion_threshold({"HOROVOD_FUSION_THRESHOLD": text})


def test_log_level(capfd: pytest.CaptureFixture[str]) -> None:
    options.logger.handlers.clear()
    try:
        options.set_up_logging({"HOROVOD_LOG_LEVEL": "ERROR"})
        options.logger.warning("quiet")
        options.logger.error("loud")
        assert capfd.readouterr().err == "[cloudtrain] loud\n"
        with pytest.raises(InvalidArgument, match="HOROVOD_LOG_LEVEL='shout' is not known"):
            options.set_up_logging({"HOROVOD_LOG_LEVEL": "shout"})
    finally:
        options.logger.handlers.clear()
        options.logger.setLevel(logging.NOTSET)


def test_every_size_is_measured_and_the_fastest_kept() -> None:
    seconds = dict(zip(SIZES, (3.0, 2.0, 1.0, 4.0), strict=True))
    now = [0.0]
    tuner = Autotuner(lambda: now[0])
    tried = []
    for step in count():
        if tuner.measured:
            break
        tried.append(tuner.size)
        # the first steps after a change, and single steps, may be slow
        now[0] += 99.0 if step % (WARM_UP_STEPS + STEPS) in (0, 2, 7) else seconds[tuner.size]
        tuner.step_ended()
    assert tried == [size for size in SIZES for _ in range(WARM_UP_STEPS + STEPS)]
    assert tuner.size == SIZES[0], "the ranks have not agreed yet"
    tuner.kept = tuner.fastest
    assert tuner.size == SIZES[2]
    tuner.step_ended()
    assert tuner.size == SIZES[2]
    assert tuner.table().splitlines()[2:] == [
        f"{SIZES[1]},2.000000", f"{SIZES[2]},1.000000", f"{SIZES[3]},4.000000", f"# kept: {SIZES[2]}"
    ]  # fmt: skip
    tuner.restart()
    assert tuner.size == SIZES[0]
    assert not tuner.measured
