"""Writes the page of hints from the table: ``python tests/unit/hints/hints_page.py``."""

from __future__ import annotations

import re
from pathlib import Path

from cloudtrain.runtime.diagnose.hints.known import SUBJECTS
from cloudtrain.runtime.sampling.xids import XIDS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "hints.md"

INTRODUCTION = """# Failures and hints

The advice of [failure reports](failure-report.md) for the commonest failures of scripts. The job fills in the text in
*italics*. A failure that is not listed has the hint of its [class](failure-report.md#failure-classes), or none where
the message is enough.

This page is generated from the table that the reports use, `cloudtrain/runtime/diagnose/hints`. The tests cause these
failures with the real libraries, and check that similar messages have no hint.
"""


def rendered() -> str:
    sections = [INTRODUCTION]
    for subject, hints in SUBJECTS.items():
        rows = {
            hint.example: hint.text for hint in reversed(hints)
        }  # of several, the first has the most facts
        examples = dict.fromkeys(hint.example for hint in hints)
        lines = [f"| {_code(example)} | {_shown(rows[example])} |" for example in examples]
        sections.append("\n".join([f"## {subject}\n", "| failure | hint |", "| --- | --- |", *lines]) + "\n")
    sections.append("\n".join([*XID_TABLE, *map(_xid_row, XIDS)]) + "\n")
    return "\n".join(sections)


XID_TABLE = (
    "## Xids\n",
    "The faults that NVIDIA's driver reports by number, after NVIDIA's [catalog]"
    "(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). They are in the hint of a rank that a GPU "
    "can have ended, if they were reported before. Those of hardware make it a `gpu-fault`.\n",
    "| Xid | meaning | of hardware | what to do |",
    "| --- | --- | --- | --- |",
)


def _xid_row(number: int) -> str:
    xid = XIDS[number]
    return f"| {number} | {xid.meaning} | {'yes' if xid.is_of_hardware else ''} | {_shown(xid.action)} |"


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def _shown(text: str) -> str:
    escaped = re.sub(r"([|*_<>])", r"\\\1", text)
    return re.sub(
        r"\{([\w\\]+)\}", lambda match: "*" + match[1].replace("\\", "").replace("_", " ") + "*", escaped
    )


if __name__ == "__main__":
    PAGE.write_text(rendered(), encoding="utf-8")
