"""No option is ignored: each of them changes the objects of a job."""

from __future__ import annotations

from typing import Any

import pytest
from kube_renderings import rendered
from option_values import KUBERNETES, NEEDS

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.common.platform_options import option_names

ELSEWHERE = {"profile", "context", "rendering_reason"}
"""They choose the cluster and say why: see test_kube_profiles.py."""


def test_every_option_is_tried() -> None:
    assert set(KUBERNETES) == set(option_names("kubernetes")) - ELSEWHERE


@pytest.mark.parametrize("name", KUBERNETES)
def test_every_option_changes_the_objects(name: str) -> None:
    without = NEEDS.get(name, {})
    job: dict[str, Any] = {"instance_count": 2, "output_path": "s3://bucket/out"}
    if name == "discard_outputs":
        with pytest.raises(Exception, match="output_path"):
            rendered(**{**job, "output_path": None})
        assert rendered(**{**job, "output_path": None}, platform_options={name: True})
        return
    before = rendered(**job, platform_options=without).body["objects"]
    assert rendered(**job, platform_options={**without, name: KUBERNETES[name]}).body["objects"] != before


def test_a_context_needs_a_kubeconfig() -> None:
    with pytest.raises(PlatformError):
        rendered(platform_options={"context": "other"})
