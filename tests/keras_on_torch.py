"""Imports Keras with the PyTorch backend, without changing the environment of programs that tests start."""

import os

import pytest

if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
    pytest.importorskip("torch")
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("KERAS_BACKEND", "torch")
    if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
        pytest.importorskip("keras")
    import keras

__all__ = ["keras"]
