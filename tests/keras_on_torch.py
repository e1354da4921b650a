"""Keras with the PyTorch backend, without changing the environment of programs that tests start.

It is imported at its first use: it takes 4 s of CPU time, in every worker that collects the tests. `selection` lets one
worker run the tests that use it.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


class Lazy:
    """A module that imports Keras, itself imported when a test first uses one of its names."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for fixtures in every name of a module
            raise AttributeError(name)
        if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
            pytest.importorskip("torch")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KERAS_BACKEND", "torch")
            if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
                pytest.importorskip("keras")
            return getattr(importlib.import_module(self._module), name)


keras = Lazy("keras")
