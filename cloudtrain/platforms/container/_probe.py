"""Runs in an image, by whatever Python that has, and tells of it: one JSON object a line, each as soon as it is known.

Usage: python _probe.py QUESTIONS, in JSON: ``modules``, names; ``script``, a path or null; ``run``, whether it may
be imported. What is imported may print what it likes: that does not get between the lines.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import runpy
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

SECONDS = 60
"""After which the probe, and its container, ends by itself, though nobody may wait for it any more."""

IMPORTED_AS = "__cloudtrain_check__"
"""The name of the script as a module: not ``__main__``, so that it does not train."""


def main() -> None:
    signal.alarm(SECONDS)
    questions = json.loads(sys.argv[1])
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(**what: Any) -> None:
        told.write(json.dumps(what) + "\n")
        told.flush()

    tell(
        python=list(sys.version_info[:3]),
        markers={
            "implementation_name": sys.implementation.name,
            "platform_machine": platform.machine(),
            "platform_system": platform.system(),
            "python_full_version": platform.python_version(),
            "python_version": ".".join(map(str, sys.version_info[:2])),
            "sys_platform": sys.platform,
        },
        mpirun=shutil.which("mpirun"),
        installed=installed(),
    )
    if "horovod" in questions["modules"] and not importlib.util.find_spec("horovod"):
        sys.path.append(os.environ["PYTHONPATH"] + "/cloudtrain/alias")  # as in a job
    for name in questions["modules"]:
        tell(trying=name)
        tell(module=name, error=error_of(partial(importlib.import_module, name)))
    script = questions["script"]
    if script:
        sys.path[0] = os.path.dirname(os.path.abspath(script))
        tell(trying=script)
        tell(script=script, error=error_of(partial(look_at, script, questions["run"])))
    tell(gpu_builds={name: build(sys.modules[name]) for name, build in BUILDS.items() if name in sys.modules})


def look_at(script: str, run: bool) -> None:
    if run:
        runpy.run_path(script, run_name=IMPORTED_AS)
    else:
        with open(script, "rb") as file:
            compile(file.read(), script, "exec")


def error_of(act: Callable[[], object]) -> dict[str, Any] | None:
    """What ``act`` fails with: its type, its last words, and where in the user's source; None where all is well."""
    try:
        act()
    except BaseException as error:
        words = traceback.format_exception_only(type(error), error)[-1].strip()
        here = os.getcwd() + os.sep
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"{f[0][len(here) :]}:{f[1]}: " for f in frames if f[0].startswith(here)]
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"kinds": kinds, "words": (lines[-1] if lines else "") + words}
    return None


def installed() -> dict[str, str]:
    """Name and version of every distribution."""
    try:
        from importlib import metadata
    except ImportError:  # Python 3.7
        return {}
    return {found.metadata["Name"]: found.version for found in metadata.distributions()}


BUILDS: dict[str, Callable[[Any], str | None]] = {
    "torch": lambda torch: torch.version.cuda or getattr(torch.version, "hip", None),
    "tensorflow": lambda tensorflow: tensorflow.sysconfig.get_build_info().get("cuda_version"),
    "mxnet": lambda mxnet: "yes" if mxnet.runtime.Features().is_enabled("CUDA") else None,
}
"""The version of CUDA that a framework was built for; None for a build without GPUs."""


if __name__ == "__main__":
    main()
