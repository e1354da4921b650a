"""A host that cannot start its ranks says why, and what to do about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cloudtrain.runtime.start.messages import FrameReader, Message, Ranks, Refused


def test_a_missing_interpreter_error_has_a_hint(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    python = str(tmp_path / "bin/python")
    program = {"ranks": 1, "python": python, "options": [], "arguments": ["train.py"]}
    ranks = Ranks({"ranks": 1, "programs": [program]}, {}, str(tmp_path), "secret")
    node = [sys.executable, "-m", "cloudtrain.runtime.foreground.node"]
    done = subprocess.run(node, input=ranks.to_line(), capture_output=True, timeout=120)
    answers: list[Message] = []
    output = b"".join(FrameReader(lambda _host, message: answers.append(message)).read(done.stdout))
    assert (output, done.stderr, done.returncode) == (b"", b"", 1)
    (answer,) = answers
    assert isinstance(answer, Refused)
    assert answer.message == f"there is no interpreter {python}"
    assert "at the same path" in answer.hint
