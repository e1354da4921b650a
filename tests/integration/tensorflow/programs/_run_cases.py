"""Runs all cases of the modules that are named after a folder; writes what went wrong to a file of this rank in it."""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module
from pathlib import Path

import cloudtrain.distributed.tensorflow as hvd


def main(folder: str, *modules: str) -> None:
    """Stops at the first case that fails: the ranks may be at different places then."""
    hvd.init(start_timeout=120, timeout=60)
    report: dict[str, str | None] = {}
    for module in modules:
        for name, function in vars(import_module(module)).items():
            if name.startswith("case_"):
                error = None
                try:
                    function()
                except Exception:
                    error = traceback.format_exc()
                report[f"{module}.{name.removeprefix('case_')}"] = error
                Path(folder, str(hvd.rank())).write_text(json.dumps(report))
                if error:
                    raise SystemExit(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
