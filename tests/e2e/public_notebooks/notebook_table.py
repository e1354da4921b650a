"""The table of the documentation, from the list."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from notebook_list import Notebook


def table(notebooks: Iterable[Notebook]) -> str:
    rows = [
        "| notebook | framework | cells | on SageMaker | on `local` | the other cells | what had to change |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*rows, *(_row(notebook) for notebook in notebooks)])


def _row(notebook: Notebook) -> str:
    repository = notebook.repository
    link = f"[{notebook.name}]({repository.url}/blob/{repository.commit}/{quote(notebook.path)})"
    passed = notebook.cells - len(notebook.fails) - len(notebook.left_out)
    jobs = f"{notebook.jobs} job{'s' if notebook.jobs > 1 else ''}"
    columns = (
        *(link, notebook.framework, f"{passed} of {notebook.cells}", jobs),
        *(
            "trains" if notebook.local else f"not run: {notebook.not_local}",
            notebook.shows or "none",
            notebook.changed,
        ),
    )
    return f"| {' | '.join(columns)} |"
