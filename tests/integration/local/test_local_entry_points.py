"""Entry points as ``python`` takes them, such as a module, and what a script sees of itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from local_jobs import Run, write

SHOW = "import sys; print(__name__, __package__, sys.argv[1:], sys.path[0] != '')"


@pytest.mark.parametrize(
    ("named", "package"),
    [
        (["pkg.train"], "'pkg'"),
        (["pkg.tool"], "'pkg.tool'"),
        (["app"], None),
        (["app", "--source-dir", "."], None),
    ],
)
def test_modules_and_folders_run(tmp_path: Path, named: list[str], package: str | None) -> None:
    write(tmp_path, "pkg/__init__.py", "")
    write(tmp_path, "pkg/other.py", "x = 5")
    write(tmp_path, "pkg/train.py", f"from .other import x\n{SHOW}")
    write(tmp_path, "pkg/tool/__main__.py", f"from pkg.other import x\n{SHOW}")
    write(tmp_path, "app/helper.py", "")
    write(tmp_path, "app/__main__.py", f"import helper\n{SHOW}")
    command = [sys.executable, "-m", "cloudtrain", "submit", *named, "--", "--lr", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = package.strip("'") if package else "None"
    assert f"[rank 0] __main__ {shown} ['--lr', '1'] True\n" in done.stdout


def test_a_line_that_is_flushed_in_parts_stays_one_line(run: Run) -> None:
    job = run("""
        import time
        for part in ("a", "b", "c"):
            print(part, end="", flush=True)
            time.sleep(0.8)
        print()
        print("\\rbar 1", end="", flush=True)
        time.sleep(1.5)
        print("\\rbar 2")
    """)
    assert job.logs().splitlines() == ["[rank 0] abc", "[rank 0] bar 1", "[rank 0] bar 2"]


def test_a_script_has_the_loader_of_its_file(run: Run) -> None:
    job = run("print(__loader__.get_filename() == __file__, 'loader' in __loader__.get_source('__main__'))")
    assert job.logs() == "[rank 0] True True\n"


def test_a_failure_that_a_shell_script_ignores_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "raise ValueError('no data')")
    write(tmp_path, "train.sh", "python train.py\necho done")
    command = [sys.executable, "-m", "cloudtrain", "submit", "train.sh", "--source-dir", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    warning = (
        "train.sh ended with exit code 0, although a program that it started raised ValueError: no data."
    )
    assert done.stdout.count(warning) >= 1
    write(tmp_path, "train.sh", "set -e\npython train.py\necho done")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 1
