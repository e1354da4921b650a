"""A job shows its goodput only if that means something."""

from __future__ import annotations

import pytest
from job_views import view

from cloudtrain._display.facts import facts
from cloudtrain.contract import JobStatus
from cloudtrain.observe import Goodput


@pytest.mark.parametrize(
    ("status", "found", "label", "text"),
    [
        (
            "Completed",
            Goodput(0.75, 80, 60, {"queue": 20}, "steps"),
            "goodput",
            "75.0% ███████████████░░░░░ (",
        ),
        ("Completed", Goodput(0.002, 5, 0.01, {"start": 4.99}, "steps"), "time", "steps 0.0 s, start 5.0 s"),
        ("Failed", Goodput(0.93, 100, 93, {"queue": 7}, "script"), "time", "script 1 min 33 s, queue 7.0 s"),
        ("Failed", Goodput(0.93, 100, 93, {"queue": 7}, "steps"), "goodput", "93.0% "),
        ("Completed", Goodput(0.93, 100, 93, {"queue": 7}, "script"), "goodput", "93.0% "),
    ],
)
def test_the_share_of_a_long_job_with_steps_is_shown(
    status: str, found: Goodput, label: str, text: str
) -> None:
    shown = dict(facts(view(status=JobStatus(status), goodput=found)))
    assert shown[label].startswith(text)
    assert len({"goodput", "time"} & {*shown}) == 1
