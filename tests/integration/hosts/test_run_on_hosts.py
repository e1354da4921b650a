"""``cloudtrain run`` on several hosts: ranks start through ssh, in the folder and with the environment of the shell."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from ssh_hosts import SshHosts

SAYS = """
import hashlib, os, socket, sys
from cloudtrain.link.secret import ranks_secret
secret = hashlib.sha256(ranks_secret(os.environ).encode()).hexdigest()
with open(f"place-{os.environ['RANK']}", "w") as file:
    file.write(f"{os.environ['MASTER_ADDR']} {os.environ['MASTER_PORT']} {os.environ['GLOO_SOCKET_IFNAME']} {secret}")
if os.environ["RANK"] == "2" and sys.argv[1:] == ["fail"]:
    sys.exit(7)
print(socket.gethostname(), os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"],
      os.environ["LOCAL_WORLD_SIZE"], os.environ["GROUP_RANK"], os.environ["GIVEN"], os.getcwd(), sys.argv[1:])
"""

TRAINS = """
import os, sys
import torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
print(hvd.rank(), hvd.size(), hvd.local_size(), hvd.cross_size(), total, hvd.broadcast_object([1], 0))
if hvd.rank() == 2:
    open("/data/x")
hvd.barrier()
"""

WAITS = """
import os, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: (print("saved", flush=True), sys.exit(0)))
print("waiting", flush=True)
time.sleep(600)
"""


@pytest.fixture
def shared(three_hosts: SshHosts) -> Path:
    """A folder that all hosts and the client share."""
    folder = three_hosts.folder / "shared"
    folder.mkdir(exist_ok=True)
    return folder


def command(hosts: SshHosts, *arguments: str) -> list[str]:
    ssh = ("-mca", "plm_rsh_agent", hosts.ssh)
    return ["env", f"--chdir={hosts.folder}/shared", "cloudtrain", "run", *ssh, *arguments]


def test_the_ranks_of_two_hosts(three_hosts: SshHosts, shared: Path) -> None:
    (shared / "train.py").write_text(SAYS)
    run = command(
        three_hosts, "-np", "3", "-H", "n1:2,n2:2,n3:2", "-x", "GIVEN=a 'b'", "python", "train.py", "x y"
    )
    process = three_hosts.run(*run)
    out, errors = process.communicate(timeout=240)
    assert (process.returncode, errors) == (0, "")
    assert sorted(out.splitlines()) == [
        f"[rank 0] n1 0 3 0 2 0 a 'b' {shared} ['x y']",
        f"[rank 1] n1 1 3 1 2 0 a 'b' {shared} ['x y']",
        f"[rank 2] n2 2 3 0 1 1 a 'b' {shared} ['x y']",
    ]
    places = {(shared / f"place-{rank}").read_text() for rank in range(3)}
    assert len(places) == 1, places  # the same address, port, interface and secret
    assert not places.pop().startswith(("127.", "n1"))
    three_hosts.wait_for_silence()

    process = three_hosts.run(
        *command(three_hosts, "-H", "n1:2,n2:1", "-x", "GIVEN=", "python", "train.py", "fail")
    )
    _, errors = process.communicate(timeout=240)
    assert (process.returncode, errors.split("\n")[1]) == (7, "rank 2 on n2 exited with code 7  [user-error]")
    three_hosts.wait_for_silence()


def test_programs_and_their_turns_on_hosts(three_hosts: SshHosts, shared: Path) -> None:
    """MPICH's hydra places these ranks on the same hosts."""
    shows = "echo $(hostname) $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, $GIVEN"
    programs = ("-ppn", "1", "-H", "n1:4,n2:4", "-np", "1", "-x", "GIVEN=a", "sh", "-c", shows, ":")
    run = command(three_hosts, *programs, "-np", "2", "-env", "GIVEN", "b", "sh", "-c", shows)
    out, errors = (process := three_hosts.run(*run)).communicate(timeout=240)
    assert (process.returncode, errors) == (0, "")
    assert sorted(out.splitlines()) == [
        "[rank 0] n1 0 of 3, local 0 of 2, a",
        "[rank 1] n2 1 of 3, local 0 of 1, b",
        "[rank 2] n1 2 of 3, local 1 of 2, b",
    ]


@pytest.mark.soak
def test_they_train_together_and_the_first_failure_ends_them(three_hosts: SshHosts, shared: Path) -> None:
    (shared / "train.py").write_text(TRAINS)
    process = three_hosts.run(*command(three_hosts, "-H", "n1:2,n2:1", "python", "train.py"))
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 1, out + errors
    for line in ("[rank 0] 0 3 2 2 3.0 [1]", "[rank 2] 2 3 1 2 3.0 [1]"):
        assert line in out.splitlines(), out + errors
    assert "rank 2 on n2 raised FileNotFoundError" in errors
    assert "no common secret" not in out
    three_hosts.wait_for_silence()


def test_ctrl_c_and_a_lost_connection_end_all_ranks(three_hosts: SshHosts, shared: Path) -> None:
    (shared / "train.py").write_text(WAITS)
    run = command(three_hosts, "-np", "2", "-H", "n1,n2", "python", "train.py")
    for number in (signal.SIGINT, signal.SIGKILL):
        process = three_hosts.run(*run)
        assert process.stdout
        for _ in range(2):
            assert process.stdout.readline().endswith("waiting\n")
        process.send_signal(number)
        out, errors = process.communicate(timeout=240)
        if number == signal.SIGINT:
            assert process.returncode == 130, out + errors
            assert out.count("saved") == 2
        three_hosts.wait_for_silence()


def test_a_host_that_cannot_run_them(three_hosts: SshHosts, shared: Path) -> None:
    began = time.monotonic()
    (shared / "train.py").touch()
    (three_hosts.own / "only-here.py").touch()
    for arguments, message in (
        (
            ["-H", "n1,nowhere", "python", "train.py"],
            "nowhere: the connection ended before its ranks started",
        ),
        (
            ["-H", "n1,n2", "--wdir", str(three_hosts.own), "python", "only-here.py"],
            ": there is no file only-here.py in",
        ),
        (["-np", "5", "-H", "n1:2,n2:2", "true"], "-np 5 is more than the 4 slots of the hosts"),
    ):
        process = three_hosts.run(*command(three_hosts, *arguments))
        out, errors = process.communicate(timeout=240)
        assert process.returncode in (1, 2), out + errors
        assert message in errors
        assert "Traceback" not in errors
    assert time.monotonic() - began < 60
    three_hosts.wait_for_silence()


INTERRUPTS = """
import os, sys
if "run" in sys.orig_argv:
    view = "cloudtrain.cli._view"
    at = lambda event, arguments: event == "import" and arguments[0] == view and os.kill(os.getpid(), 2)
    sys.addaudithook(at)
"""


def test_ctrl_c_while_a_job_starts_leaves_no_job(three_hosts: SshHosts) -> None:
    three_hosts.write_script("")
    (three_hosts.own / "sitecustomize.py").write_text(INTERRUPTS)
    paths = f"{three_hosts.own}:{Path(__file__).parents[3]}"
    run = ["cloudtrain", "run", "-H", "n1:1,n2:1", "--send", "-mca", "plm_rsh_agent", three_hosts.ssh]
    process = three_hosts.run(*run, "src/train.py", env={"PYTHONPATH": paths})
    out, errors = process.communicate(timeout=240)
    (three_hosts.own / "sitecustomize.py").unlink()
    assert (process.returncode, "Job" in errors) == (130, False), out + errors
