"""Runs the code cells of a notebook in this interpreter, with `sagemaker` in its imports changed to cloudtrain's.

python cells.py NOTEBOOK RESULTS [LEFT_OUT]

IPython runs the cells, as in a kernel: with its magics and shell commands. The cells after one that fails run, too.
LEFT_OUT is the numbers of cells that are not run, with commas. RESULTS gets one line of JSON for each cell: its number,
its error or null, and what it printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from cloudtrain._sdk.imports import change_imports


def code_cells(notebook: dict[str, Any]) -> list[str]:
    """The sources of the code cells; a source may be stored as lines."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def main(path: Path, results: Path, left_out: set[int]) -> None:
    from IPython.core.interactiveshell import InteractiveShell

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
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                done = shell.run_cell(change_imports(source))
            error = done.error_before_exec or done.error_in_exec
            text = None if error is None else f"{type(error).__name__}: {error}"
            line = {"cell": number, "error": text, "printed": printed.getvalue()[-4000:]}
            file.write(json.dumps(line) + "\n")
            file.flush()


if __name__ == "__main__":
    numbers = sys.argv[3].split(",") if len(sys.argv) > 3 else []
    main(Path(sys.argv[1]), Path(sys.argv[2]), {int(number) for number in numbers})
