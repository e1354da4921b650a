"""``cloudtrain completion``: what the Tab key writes in a real shell, in a terminal."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from command import CLOUDTRAIN, cloudtrain
from terminal import terminal

SHELLS = {
    "bash": ("bash --norc --noprofile -i", 'eval "$(cloudtrain completion bash)"'),
    "fish": ("fish --no-config", "cloudtrain completion fish | source"),
    "zsh": ("zsh -f", 'autoload -Uz compinit; compinit -u; eval "$(cloudtrain completion zsh)"'),
}
"""By shell: the command that starts it without anyone's settings, and what a user adds to them."""
KEYS = {
    "cloudtrain exam\t": "cloudtrain examples",
    "cloudtrain examples xgb\t": "cloudtrain examples xgboost",
    "cloudtrain submit tra\t": "cloudtrain submit train.py",
    "cloudtrain submit train.py --platform ku\t": "--platform kubernetes",
    "cloudtrain submit --name=x train.py --platform=ku\t": "--platform=kubernetes",
    "cloudtrain init first --framework li\t": "--framework lightning",
    "cloudtrain checkpoints list kno\t": "checkpoints list known-job",
    "cloudtrain run -np 2 --verb\t": "cloudtrain run -np 2 --verbose",
    "cloudtrain run -np 2 python tra\t": "python train.py",
}
"""The screen after each of these keys."""
CLEAR = "\x15"  # Ctrl-U


@pytest.mark.parametrize("shell", [name for name in SHELLS if name != "zsh" or shutil.which(name)])
def test_the_tab_key(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("print('trained')")
    assert cloudtrain("submit", "train.py", "--name", "known-job", cwd=tmp_path).code == 0
    path = os.pathsep.join([str(Path(CLOUDTRAIN).parent), os.environ["PATH"]])
    monkeypatch.chdir(tmp_path)
    start, settings = SHELLS[shell]
    with terminal(
        start.split(), {**os.environ, "HOME": str(tmp_path), "PATH": path, "TERM": "dumb"}
    ) as screen:
        screen.press(f"{settings}; printf '%sdy\\n' rea\r")
        screen.wait_for("ready")
        for typed, completed in KEYS.items():
            screen.press(typed)
            screen.wait_for(completed)
            screen.press(CLEAR)


def test_a_job_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the arguments that may be both, the shell offers both."""
    (tmp_path / "train.py").write_text("print('trained')")
    cloudtrain("submit", "train.py", "--name", "known-job", cwd=tmp_path)
    monkeypatch.setenv("_CLOUDTRAIN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", "2")
    for typed, completed in (
        ("describe kn", "plain,known-job\n"),
        ("timeline k", "file,k\nplain,known-job\n"),
    ):
        monkeypatch.setenv("COMP_WORDS", f"cloudtrain {typed}")
        assert cloudtrain(cwd=tmp_path).out == completed
