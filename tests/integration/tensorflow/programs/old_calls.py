"""Runs pieces of code, given as JSON by name, and prints how each ended."""

from __future__ import annotations

import json
import sys
import traceback

import keras
import numpy as np
import tensorflow as tf

MARK = "=== "

if __name__ == "__main__":
    for name, code in json.loads(sys.argv[1]).items():
        print(f"{MARK}{name}", flush=True)
        try:
            exec(code, {"keras": keras, "np": np, "tf": tf})
        except Exception:
            print(traceback.format_exc(), flush=True)
        else:
            print("it ran", flush=True)
