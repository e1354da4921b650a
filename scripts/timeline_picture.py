#!/usr/bin/env python3
"""Draws docs/guides/pictures/timeline.png by the commands of docs/guides/timeline.md: a real job of two ranks.

Run it in a clone with the packages of ``dev`` and PyTorch: python scripts/timeline_picture.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "guides" / "timeline.md"
PICTURE = PAGE.parent / "pictures" / "timeline.png"


def main() -> None:
    script = re.search(
        r"^```python train\.py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert script, f"{PAGE} has no train.py"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(script[1], encoding="utf-8")
        environ = {**os.environ, "CLOUDTRAIN_HOME": f"{folder}/home", "PYTHONPATH": str(REPOSITORY)}
        for command in (
            [
                "submit",
                "train.py",
                "--name",
                "timed",
                "--torchrun",
                "--processes-per-host",
                "2",
                "--set",
                "timeline=true",
            ],
            ["timeline", "timed", "--png", str(PICTURE)],
        ):
            subprocess.run(
                [sys.executable, "-m", "cloudtrain", *command], cwd=folder, env=environ, check=True
            )


if __name__ == "__main__":
    main()
