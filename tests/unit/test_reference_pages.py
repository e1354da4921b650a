"""The pages of the collectives name everything that is public there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_public_api import PUBLIC

DOCS = Path(__file__).parents[2] / "docs"

PAGES = {
    "cloudtrain.checkpoint": ["reference/checkpointer.md"],
    "cloudtrain.distributed.keras": ["guides/tensorflow.md"],
    "cloudtrain.distributed.mxnet": ["reference/collectives.md#MXNet"],
    "cloudtrain.distributed.numpy": ["reference/collectives.md"],
    "cloudtrain.distributed.tensorflow": ["guides/tensorflow.md"],
    "cloudtrain.distributed.torch": ["reference/collectives.md"],
    "cloudtrain.environment": ["reference/container-contract.md"],
}


def _text(place: str) -> str:
    """A page, or one section of it."""
    page, _, section = place.partition("#")
    text = (DOCS / page).read_text(encoding="utf-8")
    return text if not section else text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("package", PAGES)
def test_every_public_name_is_on_its_page(package: str) -> None:
    text = "".join(map(_text, PAGES[package]))
    names = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    assert set(PUBLIC[package].split()) - names == set()
