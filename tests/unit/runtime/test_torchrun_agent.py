"""The elastic agent of a job, on versions of PyTorch that are not installed here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch.distributed.elastic import multiprocessing
from torch.distributed.elastic.multiprocessing import api

from cloudtrain.contract.preemption import SignalsOfAgent
from cloudtrain.runtime.launchers.torchrun_agent import _leave_sigterm_to_ranks


@pytest.mark.parametrize("has_handler", [True, False])
def test_the_agent_starts_with_a_pytorch_before_2_3(
    has_handler: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no module for the handler of subprocesses; long ago, no handler of SIGTERM either."""
    name = "subprocess_handler"
    monkeypatch.setitem(sys.modules, f"{multiprocessing.__name__}.{name}", None)
    monkeypatch.delattr(multiprocessing, name, raising=False)
    monkeypatch.setattr(api.SubprocessHandler, "close", api.SubprocessHandler.close)
    monkeypatch.setattr(api, "_terminate_process_handler", api._terminate_process_handler)
    if not has_handler:
        monkeypatch.delattr(api, "_terminate_process_handler")
    monkeypatch.setenv("CLOUDTRAIN_RUN_DIR", str(tmp_path))
    _leave_sigterm_to_ranks()
    assert SignalsOfAgent(tmp_path).accept() == has_handler
