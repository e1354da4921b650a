"""Runs all cases on the backend given as first argument, and writes the failures of this rank to a file."""

from __future__ import annotations

import json
import sys
import traceback
import types
from importlib import import_module
from pathlib import Path

BACKENDS = {"gloo": "torch", "mpi": "mpi4py"}
LOADED = set(sys.modules) & set(BACKENDS.values())

import cloudtrain.distributed.numpy as hvd  # noqa: E402


def error_of(function: types.FunctionType) -> str | None:
    try:
        function()
    except Exception:
        return traceback.format_exc()
    return None


def main(backend: str, folder: str) -> None:
    """Stops at the first failing case: the ranks may be out of step after it."""
    assert set(sys.modules) & set(BACKENDS.values()) == LOADED, "the import loaded a backend"
    hvd.init(backend=backend, start_timeout=240, timeout=120)
    assert {BACKENDS[backend]} | LOADED == set(sys.modules) & set(BACKENDS.values())
    report: dict[str, str | None] = {}
    for program in sorted(Path(__file__).parent.glob("[!_]*.py")):
        for name, function in vars(import_module(program.stem)).items():
            if name.startswith("case_"):
                error = report[f"{program.stem}.{name.removeprefix('case_')}"] = error_of(function)
                Path(folder, str(hvd.rank())).write_text(json.dumps(report))
                if error:
                    raise SystemExit(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
