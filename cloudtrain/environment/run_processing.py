"""Runs the script of a processing job: the entry point of the jobs that `cloudtrain.processing` starts.

The script finds its inputs in the folders that its processor names, such as ``/opt/ml/processing/input``. After the
script has exited with status 0, the contents of its output folders are uploaded.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PLAN = "CLOUDTRAIN_PROCESSING"
"""The variable with the plan, as JSON: ``command``, ``inputs`` and ``outputs``."""


def main() -> None:
    plan = json.loads(os.environ[PLAN])
    try:
        for channel, folder in plan["inputs"].items():
            _link(Path(folder), Path(os.environ[f"SM_CHANNEL_{channel.upper()}"]))
        for name, output in plan["outputs"].items():
            _make_output(Path(output["source"]), None if output["destination"] else name)
    except OSError as error:
        sys.exit(
            f"the folders of the inputs and outputs cannot be made: {error}. Run the job in a container: "
            "platform='container', and image_uri"
        )
    status = _run(plan["command"], sys.argv[1:])
    if status:
        sys.exit(status)
    for output in plan["outputs"].values():
        if output["destination"]:
            _upload(Path(output["source"]), output["destination"])


def _link(folder: Path, target: Path) -> None:
    """Make ``folder`` a symbolic link to ``target``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.is_dir() and not folder.is_symlink():
        folder.rmdir()  # an empty folder from the image
    folder.symlink_to(target, target_is_directory=True)


def _make_output(folder: Path, name: str | None) -> None:
    """Create the folder of an output. With ``name``, it is a link to the job's folder ``output/data/NAME``."""
    if name is None:
        folder.mkdir(parents=True, exist_ok=True)
        return
    target = Path(os.environ["SM_OUTPUT_DATA_DIR"], name)
    target.mkdir(parents=True, exist_ok=True)
    _link(folder, target)


def _run(command: list[str], arguments: list[str]) -> Any:
    """Run the program, and return its exit status."""
    program, *options = command
    if program in ("python", "python3") and len(options) == 1:
        script = options[0]
        sys.argv = [script, *arguments]
        sys.path[0] = str(Path(script).parent.absolute())
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as error:
            if isinstance(error.code, str):
                raise
            return error.code
        return 0
    if program in ("python", "python3"):
        program = sys.executable
    with subprocess.Popen([program, *options, *arguments]) as process:
        signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
        return process.wait()


def _upload(folder: Path, uri: str) -> None:
    from cloudtrain.storage import open_store
    from cloudtrain.storage.transfer import upload_tree

    upload_tree(folder, open_store(uri))


if __name__ == "__main__":
    main()
