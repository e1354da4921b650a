"""How a process learns that it is about to be stopped. Each case runs in a subprocess, because it handles signals."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.contract import PREEMPTED, Notice


def run(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    prelude = "import os, signal, sys, threading, time\nfrom pathlib import Path\nfrom cloudtrain import environment\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(script)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.parametrize("number", ["SIGTERM", "SIGUSR1"])
def test_a_signal_is_a_notice_after_the_first_call(number: str) -> None:
    done = run(
        f"""
        assert environment.preemption() is None
        os.kill(os.getpid(), signal.{number})
        notice = environment.preemption()
        os.kill(os.getpid(), signal.{number})
        assert environment.preemption() is notice  # the first one counts, whatever comes after it
        print(notice.reason, round(notice.deadline - time.time()))
        environment.exit_if_preempted()
        """,
        CLOUDTRAIN_STOP_GRACE="45",
    )
    assert (done.returncode, done.stdout) == (PREEMPTED, f"signal {number} 45\n"), done.stderr


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM); print('on')", -15),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(4)); assert not environment.preemption(); "
         "os.kill(os.getpid(), signal.SIGTERM); print('on')", 4),
        ("signal.signal(signal.SIGUSR1, signal.SIG_IGN); environment.preemption(); "
         "os.kill(os.getpid(), signal.SIGUSR1); sys.exit(5 if environment.preemption() is None else 6)", 5),
        ("environment.exit_if_preempted(); sys.exit(7)", 7),
    ],
    ids=["never asked", "own handler", "ignored", "no notice"],
)  # fmt: skip
def test_scripts_that_never_check_keep_their_handlers(script: str, code: int) -> None:
    done = run(script)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr


def test_other_ranks_do_not_exit() -> None:
    done = run(
        """
        environment.preemption()
        os.kill(os.getpid(), signal.SIGTERM)
        environment.exit_if_preempted()
        print("stays")
        """,
        RANK="1",
    )
    assert (done.returncode, done.stdout) == (0, "stays\n"), done.stderr


@pytest.mark.parametrize("number", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_a_signal_while_the_interpreter_shuts_down_does_not_change_the_exit_status(
    tmp_path: Path, number: str
) -> None:
    done = run(
        f"""
        class Last:
            def __del__(self, kill=os.kill, own=os.getpid()):
                kill(own, signal.{number})
                os.write(1, b"survived")

        last = Last()
        environment.preemption()
        """,
        CLOUDTRAIN_RUN_DIR=str(tmp_path),
    )
    assert (done.returncode, done.stdout) == (0, "survived"), done.stderr


def test_the_first_call_in_another_thread() -> None:
    done = run(
        """
        asking = threading.Thread(target=environment.preemption)
        asking.start()
        asking.join()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        environment.preemption()
        os.kill(os.getpid(), signal.SIGTERM)
        assert environment.preemption()
        """
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("start", ["fork()", "thread"])
def test_a_forked_child_can_be_terminated(start: str) -> None:
    done = run(
        f"""
        environment.preemption()
        os.kill(os.getpid(), signal.SIGTERM)
        children, (printed, prints) = [], os.pipe()
        def fork():
            children.append(os.fork())
            if children[0] == 0:
                print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
                os.write(prints, b".")
                time.sleep(600)
        if {start!r} == "thread":
            forking = threading.Thread(target=fork)
            forking.start()
            while not children: pass
        else:
            fork()
        os.read(printed, 1)
        os.kill(children[0], signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
        assert environment.preemption()
        """
    )
    assert (done.returncode, done.stdout) == (0, "True\n-15\n"), done.stderr


def test_the_notice_of_the_runtime(tmp_path: Path) -> None:
    Notice(1234.5, "the machine is needed").write(tmp_path)
    done = run("print(environment.preemption())", CLOUDTRAIN_RUN_DIR=str(tmp_path))
    assert done.stdout == "Notice(deadline=1234.5, reason='the machine is needed')\n", done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["preemption"]


def test_the_notice_of_the_runtime_takes_precedence_over_the_signal(tmp_path: Path) -> None:
    done = run(
        """
        assert environment.preemption() is None
        environment.Notice(time.time() + 7, "the machine is needed").write(Path(os.environ["CLOUDTRAIN_RUN_DIR"]))
        os.kill(os.getpid(), signal.SIGTERM)
        print(environment.preemption().reason)
        """,
        CLOUDTRAIN_RUN_DIR=str(tmp_path),
    )
    assert done.stdout == "the machine is needed\n", done.stderr


def test_a_rank_that_saves_at_the_notice_does_not_exit_before(tmp_path: Path) -> None:
    done = run(
        """
        from cloudtrain.checkpoint import Checkpointer
        checkpointer = Checkpointer(os.environ["FOLDER"], every=1000)
        for step in (1, 2, 3):
            checkpointer.maybe_save(step, {"step": step})
            if step == 1:
                os.kill(os.getpid(), signal.SIGTERM)  # between the two, where nothing is saved yet
            print("at", step, flush=True)
            environment.exit_if_preempted()
        """,
        FOLDER=str(tmp_path),
    )
    assert (done.returncode, done.stdout) == (PREEMPTED, "at 1\nat 2\n"), done.stderr
    assert Checkpointer(tmp_path).steps() == [2]
