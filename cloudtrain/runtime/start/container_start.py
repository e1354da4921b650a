"""Starts the runtime in a container that mounts its folder: ``python container_start.py NAME``.

NAME is the name by which the shell started this Python: ``python3`` or ``python``. If ``python3`` is too old,
``python`` is tried, so this file has to run on every version of Python.
"""

import os
import runpy
import signal
import sys

HERE = os.path.abspath(__file__)
FAILURE = "/opt/ml/output/failure"

if sys.version_info < (3, 9):  # noqa: UP036
    if sys.argv[1] == "python3":
        try:  # noqa: SIM105
            os.execvp("python", ["python", HERE, "python"])
        except OSError:
            pass
    MESSAGE = "cloudtrain: this image has no Python 3.9 or newer\n"
    sys.stdout.write(MESSAGE)
    with open(FAILURE, "w") as file:
        file.write(MESSAGE)
    sys.exit(127)

assert sys.platform != "win32", "jobs run on Linux and macOS"

# Without a handler, the kernel discards signals to process 1. Blocked ones stay pending until the runtime has handlers.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
folder = HERE
for _ in range(4):
    folder = os.path.dirname(folder)
rest = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = os.pathsep.join([folder, rest] if rest else [folder])
os.chdir(folder)
sys.path[0] = folder  # replaces this file's own folder
runpy.run_module("cloudtrain.runtime", run_name="__main__")
