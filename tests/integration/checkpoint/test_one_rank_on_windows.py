"""A training script runs as one rank on Windows, as far as it can be played here, and keeps checkpoints."""

from __future__ import annotations

from pathlib import Path

from systems.played import run_on


def test_a_script_without_a_job(tmp_path: Path) -> None:
    program = Path(__file__).with_name("one_rank.py")
    before = {"IMPORT_BEFORE": "torch torch._dynamo torch.distributed"}
    printed = run_on("win32", program, str(tmp_path / "saved"), cwd=tmp_path, environ=before)
    assert printed.split() == ["win32", "1", "1"]
