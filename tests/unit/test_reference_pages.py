"""The reference pages of the collectives name everything that is public there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_public_api import PUBLIC

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

PAGES = {
    "cloudtrain.checkpoint": ["checkpointer"],
    "cloudtrain.distributed.keras": ["tensorflow"],
    "cloudtrain.distributed.mxnet": ["mxnet"],
    "cloudtrain.distributed.numpy": ["numpy", "collectives"],
    "cloudtrain.distributed.tensorflow": ["tensorflow"],
    "cloudtrain.distributed.torch": ["collectives"],
    "cloudtrain.environment": ["container-contract"],
}


@pytest.mark.parametrize("package", PAGES)
def test_every_public_name_is_on_its_page(package: str) -> None:
    text = "".join((REFERENCE / f"{page}.md").read_text(encoding="utf-8") for page in PAGES[package])
    names = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    assert set(PUBLIC[package].split()) - names == set()
