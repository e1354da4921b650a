"""``cloudtrain run``: ranks in the foreground, with the folder, the environment and the signals of the shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from foreground_runs import LOCAL, of_rank, run, start

from cloudtrain.runtime.launchers.launch import process_lives

SAYS = """
import os, sys
sys.stdout.write("".join(f"{part}\\n" for part in (
    f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}, local {os.environ['LOCAL_RANK']}",
    f"horovod {os.environ['HOROVOD_RANK']} of {os.environ['HOROVOD_SIZE']}",
    f"arguments {sys.argv[1:]}",
    f"folder {os.getcwd()}",
    f"given {os.environ.get('GIVEN')}, shell {os.environ.get('OF_SHELL')}",
    f"flags {sys.flags.optimize}",
)))
"""

WAITS = """
import os, signal, sys, time
def save(number, frame):
    open(f"saved-{os.environ['RANK']}", "w").close()
    if "stubborn" not in sys.argv:
        sys.exit(0)
signal.signal(signal.SIGTERM, save)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGINT, save)
open(f"pid-{os.environ['RANK']}", "w").write(str(os.getpid()))
line = "waiting"
while True:
    try:
        if line:
            print(line, flush=True)
        line = ""
        time.sleep(0.05)
    except KeyboardInterrupt:
        save(2, None)
"""


def waiting(folder: Path, process: subprocess.Popen[str], ranks: int = 2) -> list[int]:
    """Wait until all ranks wait; their process ids."""
    assert process.stdout is not None
    for _ in range(ranks):
        assert process.stdout.readline().endswith("waiting\n")
    return [int((folder / f"pid-{rank}").read_text()) for rank in range(ranks)]


def test_ranks_have_the_folder_the_environment_and_the_arguments_of_the_shell(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SAYS)
    (tmp_path / "json.py").write_text("raise SystemExit('the json.py of the user')")
    done = run(
        tmp_path,
        *(*LOCAL, "-x", "GIVEN=a b", "-x", "OF_SHELL", "-bind-to", "none", "-mca", "pml", "ob1"),
        *("python", "-u", "-O", "train.py", "--lr", "0.1", "-np", "3", "--", "a b"),
        environ={"OF_SHELL": "yes", "SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "0"},
    )
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert of_rank(done.stdout, rank) == [
            f"rank {rank} of 2, local {rank}",
            f"horovod {rank} of 2",
            "arguments ['--lr', '0.1', '-np', '3', '--', 'a b']",
            f"folder {tmp_path}",
            "given a b, shell yes",
            "flags 1",
        ]
    assert done.stderr == (
        "Note: -mca pml ob1 has no effect: it is for mpirun, which starts the ranks with --mpi\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["json.py", "train.py"]


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (["./go.sh", "a b", "--mpi"], ["go a b --mpi"]),
        (["python", "-m", "package.train", "x"], ["module x"]),
        (["python", "-c", "import sys; print('given', sys.argv[1:])", "-np"], ["given ['-np']"]),
        (["script.py"], ["script"]),
    ],
    ids=["shell script", "module", "command", "script alone"],
)
def test_programs(tmp_path: Path, command: list[str], lines: list[str]) -> None:
    (tmp_path / "go.sh").write_text('#!/bin/sh\necho "go $@"\n')
    (tmp_path / "go.sh").chmod(0o755)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text("import sys; print('module', *sys.argv[1:])")
    (tmp_path / "script.py").write_text("print('script')")
    done = run(tmp_path, "-np", "2", "--output-filename", "logs", *command)
    assert (done.returncode, done.stderr) == (0, "")
    for rank in range(2):
        assert of_rank(done.stdout, rank) == lines
        assert (tmp_path / "logs" / f"rank-{rank}.log").read_text().splitlines() == lines


def test_the_first_failure_ends_all_ranks_and_is_reported_last(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit(7)\ntime.sleep(600)\n"
    )
    began = time.monotonic()
    done = run(tmp_path, *LOCAL, "python", "train.py")
    assert (done.returncode, time.monotonic() - began < 200) == (7, True)
    assert done.stderr.splitlines() == ["", "rank 1 exited with code 7  [user-error]"]

    (tmp_path / "train.py").write_text("import os\nif os.environ['RANK'] == '0':\n    open('/data/x')\n")
    done = run(tmp_path, *LOCAL, "python", "train.py")
    assert done.returncode == 1
    report = done.stderr.splitlines()
    assert report[1].startswith(
        "rank 0 raised FileNotFoundError: [Errno 2] No such file or directory: '/data/x'"
    )
    assert report[2].startswith("Check the path: ranks run in the working folder of the shell")
    assert report[-1] == "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'"

    (tmp_path / "train.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    assert run(tmp_path, *LOCAL, "python", "train.py").returncode == 137


def test_ctrl_c_lets_ranks_save_and_a_second_one_kills_them(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WAITS)
    with start(tmp_path, *LOCAL, "python", "train.py") as process:
        ranks = waiting(tmp_path, process)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Ctrl-C: the ranks have 30 s to end; press it again to kill them" in out
    assert {path.name for path in tmp_path.glob("saved-*")} == {"saved-0", "saved-1"}
    assert not any(map(process_lives, ranks))

    with start(tmp_path, *LOCAL, "python", "train.py", "stubborn") as process:
        ranks = waiting(tmp_path, process)
        process.send_signal(signal.SIGINT)
        while "press it again" not in process.stdout.readline():  # type: ignore[union-attr]
            pass
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)
    assert (process.returncode, time.monotonic() - began < 240) == (130, True)
    assert not any(map(process_lives, ranks))


@pytest.mark.parametrize(
    ("handler", "line", "saved"),
    [
        ("print('interrupted', flush=True)\n        raise", "interrupted", set()),
        ("print('ignored', flush=True)", "ignored", {"saved-0", "saved-1"}),
    ],
    ids=["that ends the script", "that is ignored"],
)
def test_ctrl_c_is_a_keyboard_interrupt_and_then_sigterm(
    tmp_path: Path, handler: str, line: str, saved: set[str]
) -> None:
    (tmp_path / "train.py").write_text(WAITS.replace("save(2, None)", handler))
    with start(tmp_path, *LOCAL, "python", "train.py") as process:
        waiting(tmp_path, process)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=240)
    assert (process.returncode, out.count(f"] {line}\n")) == (130, 2)
    assert {path.name for path in tmp_path.glob("saved-*")} == saved


def test_ctrl_c_is_a_notice_for_a_script_that_checks_for_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import time\nfrom cloudtrain.environment import preemption\n"
        "preemption()\nprint('waiting', flush=True)\n"
        "while not preemption():\n    time.sleep(0.05)\n"
        "print('saved', flush=True)\n"
    )
    with start(tmp_path, *LOCAL, "python", "train.py") as process:
        for _ in range(2):
            assert process.stdout.readline().endswith("waiting\n")  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=240)
    assert (process.returncode, out.count("] saved\n")) == (0, 2), out


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    process = subprocess.run(
        [
            "sh",
            "-c",
            '"$@" >/dev/full',
            "sh",
            str(Path(sys.executable).with_name("cloudtrain")),
            "run",
            *LOCAL,
            "echo",
            "on",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert (
        process.stderr
        == "Error: the log of all ranks cannot be written, and a part of it is lost: No space left on device\n"
    )


INTERRUPTED = """\
import os, sys

class Interrupts:
    def find_spec(name, path=None, target=None):
        if name == "cloudtrain.runtime.foreground.run":
            os.kill(os.getpid(), 2)

sys.meta_path.insert(0, Interrupts)
"""
"""Ctrl-C while the command imports what runs the ranks."""


def test_ctrl_c_while_it_starts(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED)
    paths = f"{tmp_path}:{Path(__file__).parents[3]}"
    done = run(tmp_path, *LOCAL, "touch", "started", environ={"PYTHONPATH": paths})
    assert (done.returncode, done.stderr) == (130, "")
    assert not (tmp_path / "started").exists()


def other_host(folder: Path, login: str) -> list[str]:
    """The flags for a rank here and one on another host, whose login does ``login`` and then runs its command here."""
    ssh = folder / "ssh"
    ssh.write_text(f'#!/bin/sh\n{login}\nshift 3\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    return ["-H", "localhost:1,elsewhere:1", "-mca", "plm_rsh_agent", str(ssh)]


def test_a_login_script_may_print_an_unfinished_line(tmp_path: Path) -> None:
    done = run(tmp_path, *other_host(tmp_path, "printf 'Welcome! '"), "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_ctrl_c_does_not_wait_for_a_host_that_does_not_answer(tmp_path: Path) -> None:
    flags = other_host(tmp_path, "touch called; exec sleep 600")
    more_than_a_pipe_holds = {"LARGE": "x" * 100_000}
    with start(tmp_path, *flags, "true", environ=more_than_a_pipe_holds) as process:
        while not (tmp_path / "called").exists():
            time.sleep(0.01)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)
    assert (process.returncode, time.monotonic() - began < 240) == (130, True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_rank_outlives_it(tmp_path: Path, number: int) -> None:
    (tmp_path / "train.py").write_text(WAITS)
    with start(tmp_path, *LOCAL, "python", "train.py") as process:
        ranks = waiting(tmp_path, process)
        process.send_signal(number)
        process.communicate(timeout=240)
    assert process.returncode == (-9 if number == signal.SIGKILL else 143)
    end = time.monotonic() + 60
    while any(map(process_lives, ranks)):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_mpirun_starts_the_ranks_on_request(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint(os.environ['OMPI_COMM_WORLD_RANK'], os.environ['RANK'], os.environ['HOROVOD_RANK'],\n"
        "      os.environ['JAX_PROCESS_ID'], os.environ['OMPI_MCA_coll_base_verbose'], sys.argv[1:])\n"
        "sys.exit(3 if 'fail' in sys.argv and os.environ['RANK'] == '1' else 0)\n"
    )
    mpi = ["--mpi", "-mca", "coll_base_verbose", "0", "python", "train.py"]
    done = run(tmp_path, *LOCAL, *mpi, "a b")
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in "01":
        assert of_rank(done.stdout, int(rank)) == [f"{rank} {rank} {rank} {rank} 0 ['a b']"]
    done = run(tmp_path, *LOCAL, *mpi, "fail")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "rank 1 exited with code 3" in done.stderr


@pytest.mark.parametrize(
    ("options", "script", "warnings"),
    [
        ((), "from mpi4py import MPI", 1),
        (("--mpi",), "from mpi4py import MPI", 0),
        ((), "import sys; sys.path.insert(0, 'site-packages'); import looks_for_mpi", 0),
    ],
)
def test_a_warning_for_mpi4py_in_ranks_that_mpirun_did_not_start(
    tmp_path: Path, options: Sequence[str], script: str, warnings: int
) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/looks_for_mpi.py").write_text("from mpi4py import MPI")
    (tmp_path / "train.py").write_text(script)
    done = run(tmp_path, *LOCAL, *options, "python", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the world of mpi4py has one process in each of the 2 ranks") == warnings, (
        done.stdout
    )


SHOWS_ITS_PROGRAM = """
import os, sys
shown = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "A", "B", "G")]
print(*shown, os.path.basename(sys.argv[0]), os.path.basename(os.getcwd()), sys.argv[1:], flush=True)
"""
PROGRAMS = ("-genv", "G=g", "-x", "A=1", "-np", "1", "python", "a.py", "x y", ":")
MORE_PROGRAMS = ("-np", "2", "-env", "B", "b c", "-wdir", "sub", "python", "b.py", ":", "-np", "1", "./c.sh")


@pytest.mark.parametrize("launcher", ["", "--mpi", "MPICH"])
def test_several_programs_are_one_world(tmp_path: Path, launcher: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.py").write_text(SHOWS_ITS_PROGRAM)
    (tmp_path / "sub" / "b.py").write_text(SHOWS_ITS_PROGRAM)
    (tmp_path / "c.sh").write_text('#!/bin/sh\necho "$RANK $WORLD_SIZE $A $B $G"\n')
    (tmp_path / "c.sh").chmod(0o755)
    environ = {"A": "0"}
    if launcher == "MPICH":
        if not Path("/usr/bin/mpiexec.hydra").exists():
            pytest.skip("MPICH is not installed")
        (tmp_path / "mpich").mkdir()
        (tmp_path / "mpich" / "mpirun").write_text('#!/bin/sh\nexec /usr/bin/mpiexec.hydra "$@"\n')
        (tmp_path / "mpich" / "mpirun").chmod(0o755)
        environ["PATH"] = f"{tmp_path}/mpich:{Path(sys.executable).parent}:{os.environ['PATH']}"
    flags = ["--mpi"] if launcher else []
    done = run(tmp_path, *flags, *PROGRAMS, *MORE_PROGRAMS, environ=environ)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert of_rank(done.stdout, 0) == [f"0 4 1 None g a.py {tmp_path.name} ['x y']"]
    for rank in (1, 2):
        assert of_rank(done.stdout, rank) == [f"{rank} 4 0 b c g b.py sub []"]
    assert of_rank(done.stdout, 3) == ["3 4 0  g"]


@pytest.mark.parametrize("mpi", [[], ["--mpi"]])
def test_wdir_is_relative_to_the_folder_of_the_shell(tmp_path: Path, mpi: list[str]) -> None:
    for folder in ("sub", "sub/sub"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(f"print('in {folder}')")
    done = run(tmp_path, "-np", "1", *mpi, "--wdir", "sub", "python", "train.py")
    assert (done.returncode, of_rank(done.stdout, 0)) == (0, ["in sub"]), done.stderr


def test_horovod_scripts_in_several_programs_train_together(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, torch, horovod.torch as hvd\nhvd.init()\n"
        "total = hvd.allreduce(torch.tensor([float(sys.argv[1])]), op=hvd.Sum).item()\n"
        "print(hvd.rank(), total, hvd.broadcast_object(sys.argv[1:], 0))\n"
    )
    train = ("-np", "1", "python", "train.py")
    done = run(tmp_path, "--timeline-filename", "timeline.json", *train, "3", ":", *train, "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [of_rank(done.stdout, rank) for rank in range(2)] == [["0 7.0 ['3']"], ["1 7.0 ['3']"]]
    assert (tmp_path / "timeline.json").exists()


def test_a_program_that_fails_ends_the_others(tmp_path: Path) -> None:
    done = run(tmp_path, "-np", "1", "sleep", "60", ":", "-np", "1", "sh", "-c", "exit 3")
    assert (done.returncode, done.stderr) == (3, "\nrank 1 exited with code 3  [user-error]\n")


def test_mpich_flags_for_the_environment_of_the_shell(tmp_path: Path) -> None:
    shows = ("sh", "-c", "echo $A $B $G $HOME")
    shell = {"A": "a", "B": "b", "HOME": "/home/me"}
    for flags, line in (
        (("-genvnone", "-genv", "G", "g"), "g /home/me"),
        (("-genvlist", "B"), "b /home/me"),
        (("-genvall",), "a b /home/me"),
    ):
        assert of_rank(run(tmp_path, *flags, "-np", "1", *shows, environ=shell).stdout, 0) == [line]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-np", "2"], "there is no program to run"),
        (["-np", "2", "gone"], "there is no program 'gone'"),
        (["-np", "9", "-H", "server1:2", "python", "x.py"], "-np 9 is more than the 2 slots of the hosts"),
        (["-np", "2", "--wdir", "gone", "true"], "--wdir gone: No such file"),
        (["-np", "2", "--hostfile", "gone", "true"], "--hostfile gone: No such file"),
        (["-np", "2", "--min-np", "1", "true"], "run does not take --min-np"),
        (["-np", "1", "true", ":", "-np", "1", "gone"], "there is no program 'gone'"),
        (["-np", "1", "true", ":", "-np", "1", "-wdir", "gone", "true"], "--wdir gone: No such file"),
        (
            ["-H", "a,b", "--send", "-np", "1", "true", ":", "-np", "1", "true"],
            "several programs: not for ranks",
        ),
    ],
)
def test_a_wrong_command_line_starts_nothing(tmp_path: Path, arguments: Sequence[str], message: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"Error: {message}")


def test_what_it_prints_about_itself(tmp_path: Path) -> None:
    shown = run(tmp_path, "--help").stdout
    assert "--fusion-threshold-mb MB" in shown
    assert "min-np" not in shown
    assert run(tmp_path, "-V").stdout.startswith("cloudtrain ")
    assert "[X] PyTorch" in run(tmp_path, "--check-build").stdout
