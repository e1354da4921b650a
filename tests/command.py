"""The ``cloudtrain`` command as a person types it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import warm_python

CLOUDTRAIN = str(Path(sys.executable).parent / "cloudtrain")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def cloudtrain(
    *arguments: str, cwd: Path, timeout: float = 120, env: Mapping[str, str] = os.environ
) -> Result:
    """Run the command in its own process, forked from one that has its modules: half of the CPU time."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        program = warm_python.start([CLOUDTRAIN, *arguments], env, out, err, cwd, warm_python.COMMAND)
        try:
            code = program.wait(timeout)
        finally:
            program.kill()
        return Result(code, _text(out), _text(err))


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
