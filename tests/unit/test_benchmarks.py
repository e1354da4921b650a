"""Every benchmark of `benchmarks/README.md` finds what it imports, in a clean clone and from any folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

IMPORT_EACH = """
import importlib, os, sys, traceback
import boto3, numpy, torch  # once, for all
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    child = os.fork()
    if not child:
        code = 1
        try:
            importlib.import_module(name)
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


def test_each_finds_what_it_imports(tmp_path: Path) -> None:
    named = re.findall(r"`python benchmarks/(\w+)\.py", (BENCHMARKS / "README.md").read_text())
    existing = [path.stem for path in BENCHMARKS.glob("[a-z]*.py")]
    assert sorted(named) == sorted(existing)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, str(BENCHMARKS), *named],
        cwd=tmp_path, env=environ, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
