"""The ``cloudtrain`` command as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLOUDTRAIN = str(Path(sys.executable).parent / "cloudtrain")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def cloudtrain(*arguments: str, cwd: Path, timeout: float = 120) -> Result:
    done = subprocess.run(
        [CLOUDTRAIN, *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)
