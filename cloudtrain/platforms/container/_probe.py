"""Runs inside an image, in any Python, and reports what the image has: one JSON object per line, flushed immediately.

Usage: python _probe.py REQUEST. The request is JSON: ``modules``, a list of names; ``script``, a path or null;
``run``, whether to import the script or only compile it. Output of imported modules does not mix with the report.
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

assert sys.platform != "win32", "jobs run on Linux and macOS"

SECONDS = 60
"""The probe and its container end after this time, even if the client has died."""

IMPORTED_AS = "__cloudtrain_check__"
"""The ``__name__`` of the script. It is not ``__main__``, so that the script does not train."""


def main() -> None:
    signal.alarm(SECONDS)
    request = json.loads(sys.argv[1])
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def report(**values: Any) -> None:
        output.write(json.dumps(values) + "\n")
        output.flush()

    report(
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
    if not importlib.util.find_spec("horovod"):
        sys.path.append(os.environ["PYTHONPATH"] + "/cloudtrain/alias")  # as in a job
    for name in request["modules"]:
        report(trying=name)
        report(module=name, error=error_of(partial(importlib.import_module, name)))
    script = request["script"]
    if script:
        sys.path[0] = os.path.dirname(os.path.abspath(script))
        report(trying=script)
        report(script=script, error=error_of(partial(load, script, request["run"])))
    report(
        gpu_builds={name: build(sys.modules[name]) for name, build in BUILDS.items() if name in sys.modules}
    )


def load(script: str, run: bool) -> None:
    if run:
        runpy.run_path(script, run_name=IMPORTED_AS)
    else:
        with open(script, "rb") as file:
            compile(file.read(), script, "exec")


def error_of(act: Callable[[], object]) -> dict[str, Any] | None:
    """The exception that ``act`` raises: its classes, its message, and its line in the user's source; or None."""
    try:
        act()
    except BaseException as error:
        message = traceback.format_exception_only(type(error), error)[-1].strip()
        here = os.getcwd() + os.sep
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"{f[0][len(here) :]}:{f[1]}: " for f in frames if f[0].startswith(here)]
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"kinds": kinds, "message": (lines[-1] if lines else "") + message}
    return None


def installed() -> dict[str, str]:
    """The version of every installed distribution, by name."""
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
"""The version of CUDA that a framework was built for; None for a build without GPU support."""


if __name__ == "__main__":
    main()
