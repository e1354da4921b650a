"""Runs the cases of several programs, named by the arguments, one program after the other in the same processes."""

from __future__ import annotations

import gc
import runpy
import sys
from pathlib import Path

from _cases import run

import cloudtrain.distributed.torch as hvd

if __name__ == "__main__":
    for program in sys.argv[1:]:
        run(runpy.run_path(str(Path(__file__).with_name(program)), run_name=program))
        gc.collect()  # optimizers in reference cycles
        hvd.shutdown()  # so that each program starts without names, process sets and memory of those before
