"""The directives of Slurm in a batch script."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Directive:
    """One ``#SBATCH`` line. Without a value, it is a switch."""

    flag: str
    value: str | None = None
    comment: str = ""

    def to_line(self) -> str:
        name = f"--{self.flag}"
        return f"#SBATCH {name}" if self.value is None else f"#SBATCH {name}={quoted(self.value)}"


def quoted(text: str) -> str:
    """``text`` as one value in a directive. For Slurm, a backslash is special between all quotes, too."""
    return shlex.quote(text).replace("\\", "\\\\")
