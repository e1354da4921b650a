"""The variables that a supervised job inherits from the process that submits it."""

from __future__ import annotations

import pytest

from cloudtrain.platforms.supervised.client_environ import client_environ

SET = {"RANK": "3", "JAX_PROCESS_ID": "3", "TF_CONFIG": "{}", "DMLC_TASK_ID": "3", "OTHER": "1"}


@pytest.mark.parametrize(
    ("inside", "kept"),
    [(True, {"OTHER"}), (False, {"OTHER", "JAX_PROCESS_ID", "TF_CONFIG", "DMLC_TASK_ID"})],
)
def test_the_place_of_an_outer_rank_stays_behind(
    inside: bool, kept: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that submits a job has its own place in these variables; outside jobs, the user has set them."""
    for name, value in SET.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CLOUDTRAIN_RUN_DIR", raising=False)
    if inside:
        monkeypatch.setenv("CLOUDTRAIN_RUN_DIR", "/run")
    assert SET.keys() & client_environ().keys() == kept
