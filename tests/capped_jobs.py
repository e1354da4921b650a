"""Jobs on clusters that reach a cap on their cost within seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

SAVES = """
import os, signal, sys, time

def save(*_):
    for folder in (os.environ["SM_MODEL_DIR"], sys.argv[1]):
        with open(f"{folder}/saved-by-{os.environ['RANK']}", "w") as file:
            file.write("usable")
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("runs", flush=True)
time.sleep(300)
"""
"""A script that saves its model, and a checkpoint in the folder of its argument, when it is stopped."""


def set_prices(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes cost a EUR-cent in six seconds. A cap may pay for less than a minute here."""
    path = tmp_path / "prices.yaml"
    path.write_text(
        f"prices: {{currency: EUR, date: 2026-10-01, rows: [{{platform: {platform}, node_hour: 3}}]}}"
    )
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(path))
    monkeypatch.setattr("cloudtrain.cost.terms.LEAST_SECONDS", 1.0)
