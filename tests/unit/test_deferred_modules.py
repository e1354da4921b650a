"""Modules of the standard library that the programs of cloudtrain import when they use them."""

from __future__ import annotations

import subprocess
import sys

DEFERRED = """
import sys
from importlib.util import find_spec
from threading import Barrier, Thread
from cloudtrain._lazy import defer
defer("inspect")
import dataclasses
assert find_spec("inspect").origin.endswith("inspect.py")
assert "tokenize" not in sys.modules, "it has been imported, and not used"
here, found = Barrier(8), []
def use():
    here.wait()
    from inspect import signature
    found.append(signature)
threads = [Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
import inspect
assert inspect.__name__ == "inspect" and inspect.isclass(dict)
assert found == [inspect.signature] * 8 and dataclasses.inspect.signature is inspect.signature
assert not hasattr(dataclasses.inspect, "nothing")
defer("inspect")
assert sys.modules["inspect"] is inspect
"""


STARTED = """
import gc, sys
from cloudtrain._lazy import GARBAGE, start_program
start_program()
import dataclasses
assert gc.get_threshold()[0] == GARBAGE and "tokenize" not in sys.modules
"""


def test_a_program_looks_for_little_garbage_and_defers_what_it_hardly_uses() -> None:
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_deferred_module_is_imported_once_by_its_first_user() -> None:
    done = subprocess.run([sys.executable, "-c", DEFERRED], capture_output=True, text=True)
    assert not done.stderr
    assert done.returncode == 0
