"""Extras are valid, are in the tables of the docs, and install all that they are for."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cloudtrain.distributed.numpy._context import BACKENDS

REPOSITORY = Path(__file__).parents[3]


def _extras() -> dict[str, list[Requirement]]:
    """The requirements of each extra. Raises InvalidRequirement."""
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    extras = config["options.extras_require"]
    return {name: [Requirement(line) for line in extras[name].splitlines() if line] for name in extras}


def test_the_extra_of_tensorflow_installs_a_transport() -> None:
    names = {requirement.name for requirement in _extras()["tensorflow"]}
    assert "tensorflow" in names
    assert BACKENDS["gloo"] in names  # the transport that every launcher can use


@pytest.mark.parametrize("extra", sorted({*_extras()} - {"dev"}))
def test_an_extra_has_its_size_in_the_docs(extra: str) -> None:
    assert _extras()[extra], "it installs something"
    page = (REPOSITORY / "docs/guides/compared.md").read_text(encoding="utf-8")
    sizes = page[page.index("## What each extra adds") :]
    assert len(re.findall(rf"^\| `{extra}` \|", sizes, re.MULTILINE)) == 1


def test_the_docs_name_no_extra_that_does_not_exist() -> None:
    page = (REPOSITORY / "docs/guides/compared.md").read_text(encoding="utf-8")
    sizes = page[page.index("## What each extra adds") :]
    assert {*re.findall(r"^\| `(\S+)` \|", sizes, re.MULTILINE)} <= {*_extras()}


def test_dev_installs_what_other_extras_need_for_the_tests() -> None:
    """A version that an extra asks for is the one that the tests run with."""
    extras = _extras()
    dev = {requirement.name: requirement.specifier for requirement in extras.pop("dev")}
    differs = {
        f"{extra}: {needed}"
        for extra, needs in extras.items()
        for needed in needs
        if needed.name in dev and needed.specifier != dev[needed.name]
    }
    assert not differs
