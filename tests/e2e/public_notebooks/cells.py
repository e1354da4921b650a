"""Runs the code cells of a notebook in this interpreter.

python cells.py {cloudtrain|sagemaker} NOTEBOOK RESULTS [LEFT_OUT]

With `cloudtrain`, `sagemaker` in its imports is changed to cloudtrain's. IPython runs the cells, as in a kernel: with
its magics and shell commands, except those that install packages. The cells after one that fails, or that takes longer
than two minutes, run, too. LEFT_OUT is the numbers of cells that are not run, with commas. RESULTS gets one line of
JSON for each cell: its number, its error or null, what it printed, and its requests for jobs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

JOBS = {"CreateTrainingJob", "CreateHyperParameterTuningJob", "CreateProcessingJob", "CreatePipeline"}
_INSTALLS = re.compile(r"^(\s*).*(?:\bpip3?\s+(?:un)?install|-m pip|conda (?:un)?install).*", re.MULTILINE)


def code_cells(notebook: dict[str, Any]) -> list[str]:
    """The sources of the code cells; a source may be stored as lines."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def without_installs(source: str) -> str:
    """The cell without lines that change the packages of this interpreter."""
    return source if source.startswith("%%") else _INSTALLS.sub(r"\1pass", source)


def record_requests() -> list[tuple[str, dict[str, Any]]]:
    """A list that gets the requests for jobs. All requests go to the simulated AWS, also those of the SDK to STS."""
    from botocore.handlers import BUILTIN_HANDLERS

    requests: list[tuple[str, dict[str, Any]]] = []

    def keep(params: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name in JOBS:
            requests.append((model.name, json.loads(json.dumps(params))))

    def redirect(params: dict[str, Any], **_: Any) -> None:
        params["url"] = re.sub(r"^https?://[^/]+", os.environ["AWS_ENDPOINT_URL"], params["url"])

    BUILTIN_HANDLERS.extend([("provide-client-params.*.*", keep), ("before-call.*.*", redirect)])
    return requests


def _too_long(*_: object) -> None:
    raise TimeoutError("the cell takes longer than two minutes")


def main(library: str, path: Path, results: Path, left_out: set[int]) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    change = None
    if library == "cloudtrain":
        from cloudtrain._sdk.imports import change_imports as change
    requests = record_requests()
    signal.signal(signal.SIGALRM, _too_long)
    sys.path[0] = ""  # as in a kernel: the folder of the notebook
    shell = InteractiveShell.instance()
    shell.run_cell("pass")
    for name in ("pip", "store", "matplotlib"):  # a kernel's, and nothing to do with the jobs
        shell.register_magic_function(lambda line: print("left out:", line), "line", name)
    with results.open("w", encoding="utf-8") as file:
        for number, source in enumerate(code_cells(json.loads(path.read_text(encoding="utf-8"))), 1):
            if number in left_out:
                continue
            printed = io.StringIO()
            source = without_installs(source)
            requests.clear()
            signal.alarm(120)
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                done = shell.run_cell(change(source) if change else source)
            signal.alarm(0)
            error = done.error_before_exec or done.error_in_exec
            text = None if error is None else f"{type(error).__name__}: {error}"
            line = {"cell": number, "error": text, "printed": printed.getvalue()[-4000:]}
            file.write(json.dumps({**line, "requests": requests}) + "\n")
            file.flush()


if __name__ == "__main__":
    numbers = sys.argv[4].split(",") if len(sys.argv) > 4 else []
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), {int(number) for number in numbers})
