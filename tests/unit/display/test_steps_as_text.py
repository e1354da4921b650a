"""The progress of a training as text."""

from __future__ import annotations

from typing import Any

import pytest
from job_views import view

from cloudtrain._display.steps import brief_progress, step_facts


@pytest.mark.parametrize(
    ("fields", "long", "brief"),
    [
        ({}, "", ""),
        ({"step": 7}, "step 7", "step 7"),
        ({"step": 7, "step_rate": 2.5}, "step 7, 2.5 steps/s", "step 7"),
        ({"step": 7, "step_rate": 0.01}, "step 7, 1 min 40 s a step", "step 7"),
        (
            {
                "step": 1500,
                "total_steps": 3000,
                "progress": 0.5,
                "step_rate": 5.0,
                "remaining_seconds": 300.0,
            },
            "step 1,500 of 3,000 (50%), 5 steps/s, about 5 min 0 s left",
            "50% 5 min 0 s left",
        ),
        (
            {"step": 5, "total_steps": 10, "progress": 0.5, "step_rate": 5.0, "stalled_seconds": 90.0},
            "step 5 of 10 (50%), no step for 1 min 30 s",
            "50% no step for 1 min 30 s",
        ),
        (
            {"step": 10, "total_steps": 10, "progress": 1.0, "step_rate": 5.0, "remaining_seconds": 0.0},
            "step 10 of 10 (100%), 5 steps/s",
            "100%",
        ),
        ({"step": 12, "total_steps": 10}, "step 12", "step 12"),
    ],
)
def test_what_is_known_is_shown(fields: dict[str, Any], long: str, brief: str) -> None:
    description = view(**fields).description
    assert (step_facts(description), brief_progress(description)) == (long, brief)
