"""Refuses a PyTorch that is too old, before an import of something that it lacks fails."""

import re

import torch

OLDEST = "2.4"


def _numbers(version: str) -> "list[int]":
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


if _numbers(torch.__version__) < _numbers(OLDEST):
    raise ImportError(
        f"cloudtrain.distributed.torch needs PyTorch {OLDEST} or newer, and this is {torch.__version__} "
        f"(in {torch.__path__[0]})"
    )
