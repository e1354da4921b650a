"""The extra of a framework installs all that its ranks need."""

from __future__ import annotations

import configparser
from pathlib import Path

from packaging.requirements import Requirement

from cloudtrain.distributed.numpy._context import BACKENDS

SETUP = Path(__file__).parents[3] / "setup.cfg"


def test_the_extra_of_tensorflow_installs_a_transport() -> None:
    config = configparser.ConfigParser()
    config.read(SETUP, encoding="utf-8")
    lines = config["options.extras_require"]["tensorflow"].split("\n")
    names = {Requirement(line).name for line in lines if line}
    assert "tensorflow" in names
    assert BACKENDS["gloo"] in names  # the transport that every launcher can use
