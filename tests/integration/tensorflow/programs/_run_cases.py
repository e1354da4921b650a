"""Runs the given cases, or all of given modules, and writes the failures of this rank to a file in the given folder."""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module
from pathlib import Path

import cloudtrain.distributed.tensorflow as hvd


def main(folder: str, *chosen: str) -> None:
    """Stops at the first failing case: the ranks may be out of step after it."""
    hvd.init(start_timeout=120, timeout=60)
    report: dict[str, str | None] = {}
    for one in chosen:
        module, _, only = one.partition(".")
        for name, function in vars(import_module(module)).items():
            if name.startswith("case_") and only in ("", name.removeprefix("case_")):
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
