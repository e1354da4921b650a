"""Runs all cases on this rank, up to the first failing one: the ranks may be out of step after it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import cloudtrain.distributed.mxnet as hvd

hvd.init(backend="mpi", start_timeout=60, timeout=30)
for program in sorted(Path(__file__).parent.glob("case_*.py")):
    for name, function in list(vars(import_module(program.stem)).items()):
        if name.startswith("case_"):
            print(f"rank {hvd.rank()}: {program.stem} {name}", flush=True)
            function()
print(f"rank {hvd.rank()} of {hvd.size()}: all cases passed", flush=True)
