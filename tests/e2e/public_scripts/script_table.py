"""The table of the documentation, made from the list."""

from __future__ import annotations

from urllib.parse import quote

from script_list import Script


def table(scripts: list[Script]) -> str:
    """The rows for docs/reference/public-scripts.md."""
    lines = ["| script | command | outcome | what had to change |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *(row(script) for script in scripts)])


def row(script: Script) -> str:
    """One row: a link to the script at its commit, the command, the outcome, what changed around it."""
    url = f"{script.repository.url}/blob/{script.repository.commit}/{quote(script.path)}"
    command = script.command.replace("|", "\\|")
    return f"| [{script.name}]({url}) | `{command}` | {script.outcome} | {script.changed} |"
