"""Jobs on three hosts that are reached through ssh."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import SshHosts

SCRIPT = """
import json, os, pathlib, socket, sys
import helper

names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SM_HOSTS", "SM_CURRENT_HOST",
         "SM_NETWORK_INTERFACE_NAME", "SM_CHANNEL_TRAIN", "SAGEMAKER_BASE_DIR", "GREETING", "CLOUDTRAIN_SECRET"]
seen = {name: os.environ.get(name) for name in names}
seen["hostname"] = socket.gethostname()
seen["data"] = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"], "deep/a.txt").read_text()
commands = [path.read_text() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.parent.is_dir()]
seen["commands"] = " ".join(commands).replace("\\0", " ")
seen["argv"] = sys.argv[1:]
seen["secret"] = os.environ["API_TOKEN"].count("s3cr3t")
folder = os.environ["SM_OUTPUT_DATA_DIR"]
json.dump(seen, open(f"{folder}/seen-{seen['RANK']}.json", "w"))
print(f"{seen['hostname']} says {seen['GREETING']}")
if seen["RANK"] == "0":
    pathlib.Path(os.environ["SM_MODEL_DIR"], "model.txt").write_text("trained")
"""


RANKS = ["n2", "n2", "n1", "n1", "n3", "n3"]
"""The host of each rank."""


@pytest.fixture(scope="module")
def hosts(three_hosts: SshHosts) -> SshHosts:
    (three_hosts.own / "data/deep").mkdir(parents=True)
    (three_hosts.own / "data/deep/a.txt").write_text("only the client has this")
    three_hosts.write_script(SCRIPT)
    return three_hosts


Seen = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def seen(hosts: SshHosts) -> Seen:
    """The observations of the ranks of a job, which begins with n2."""
    code, output = hosts.submit(
        "good", "--set", "platform_options.hosts=n2:2,n1:2,n3:2", "--input", "train=data",
        "--set", "environment.GREETING=hello", "--set", "environment.API_TOKEN=s3cr3t-s3cr3t", "--", "--epochs", "3",
    )  # fmt: skip
    assert code == 0, output
    assert {f"[rank {rank}] {name} says hello" for rank, name in enumerate(RANKS)} <= {*output.splitlines()}
    found = {}
    with tarfile.open(hosts.job("good") / "output/output.tar.gz") as tar:
        for item in tar:
            if "seen-" in item.name and (file := tar.extractfile(item)):
                found[int(item.name.rpartition("seen-")[2][:-5])] = json.load(file)
    return found


def test_every_host_runs_its_ranks(seen: Seen) -> None:
    """In the user's order; and files, arguments and variables reach all of them."""
    assert [seen[rank]["hostname"] for rank in sorted(seen)] == RANKS
    assert [seen[rank]["SM_CURRENT_HOST"] for rank in sorted(seen)] == RANKS
    same = {
        "WORLD_SIZE": "6",
        "MASTER_ADDR": "10.77.0.2",
        "SM_HOSTS": '["n2","n1","n3"]',
        "SM_NETWORK_INTERFACE_NAME": "eth0",
        "data": "only the client has this",
        "argv": ["--epochs", "3"],
        "secret": 2,
    }
    for rank in seen:
        assert {name: seen[rank][name] for name in same} == same
    assert len({seen[rank]["MASTER_PORT"] for rank in seen}) == 1


def test_no_secret_is_in_a_command_line(hosts: SshHosts, seen: Seen) -> None:
    for rank in seen.values():
        assert "cloudtrain.runtime" in rank["commands"]
        assert "s3cr3t" not in rank["commands"]
        assert rank["CLOUDTRAIN_SECRET"] is None
    assert "s3cr3t" not in (hosts.job("good") / "request.json").read_text()


def test_the_outputs_of_all_hosts_are_copied_back(hosts: SshHosts, seen: Seen) -> None:
    with tarfile.open(hosts.job("good") / "output/model.tar.gz") as tar:
        assert [item.name for item in tar if item.isfile()] == ["model.txt"]
    assert "n3 says hello" in (hosts.job("good") / "hosts/n3/output/logs/rank-4.log").read_text()


def test_nothing_but_the_runtime_is_left_on_the_hosts(hosts: SshHosts, seen: Seen) -> None:
    hosts.wait_for_silence()
    for name in hosts.names:
        assert {path.name for path in (hosts.folder / f"state-{name}").iterdir()} == {"jobs", "runtime"}
        assert not any((hosts.folder / f"state-{name}/jobs").iterdir())
    assert not list(hosts.job("good").glob("hosts/*/input/config/secret"))


STACKS_SCRIPT = """
import os, time
def load():
    time.sleep(600)
def train():
    time.sleep(600)
print("ready", flush=True)
load() if os.environ["RANK"] == "3" else train()
"""

MPI_SCRIPT = """
import os, pathlib
from cloudtrain import environment

rank, data = os.environ["OMPI_COMM_WORLD_RANK"], os.path.realpath(os.environ["SM_CHANNEL_TRAIN"])
print("rank", rank, os.uname().nodename, data, environment.checkpoint_uri())
if rank == "0":
    pathlib.Path(os.environ["SM_MODEL_DIR"], "model.txt").write_text("by mpirun")
"""


def test_a_job_by_mpirun_in_a_shared_folder(hosts: SshHosts) -> None:
    """Data in the folder is used in place; outputs and checkpoints go there."""
    shared = hosts.folder / "shared"
    (shared / "data").mkdir(parents=True)
    (shared / "data/a.txt").write_text("shared")
    hosts.write_script(MPI_SCRIPT)
    code, output = hosts.submit(
        "mpi", "--set", "platform_options.hosts=n1:2,n2:2,n3:2", "--set", f"platform_options.folder={shared}",
        "--set", "distribution.mpi={}", "--input", f"train=file://{shared}/data",
    )  # fmt: skip
    assert code == 0, output
    for rank in range(6):
        where = f"n{rank // 2 + 1} {shared}/data file://{shared}/mpi/checkpoints"
        assert f"[rank {rank}] rank {rank} {where}" in output
    with tarfile.open(shared / "mpi/output/model.tar.gz") as tar:
        assert [item.name for item in tar if item.isfile()] == ["model.txt"]
    assert {path.name for path in (shared / "mpi").iterdir()} <= {"output", "checkpoints"}
    hosts.wait_for_silence()


@pytest.mark.parametrize(
    "names", ["localhost:1,n1:1", pytest.param("n1:1,localhost:1", marks=pytest.mark.soak)]
)
def test_this_machine_and_another(hosts: SshHosts, names: str) -> None:
    """This machine runs its part without ssh, as the leader or not."""
    hosts.write_script('import os\nprint("rank", os.environ["RANK"], os.uname().nodename)\n')
    code, output = hosts.submit(names[0], "--set", f"platform_options.hosts={names}")
    assert code == 0, output
    order = [{"localhost": "n4"}.get(name[:-2], name[:-2]) for name in names.split(",")]
    assert {f"[rank {rank}] rank {rank} {name}" for rank, name in enumerate(order)} <= {*output.splitlines()}


RESUMES = """
import os, pathlib, sys
from cloudtrain import environment

folder = pathlib.Path(environment.checkpoint_uri().removeprefix("file://"))
folder.mkdir(parents=True, exist_ok=True)
steps = sorted(path.name for path in folder.iterdir())
(folder / f"step-{len(steps)}").write_text("state")
print("found", steps, flush=True)
sys.exit(3 if len(steps) < 1 else 0)
"""


def test_a_retry_finds_the_checkpoints(hosts: SshHosts) -> None:
    """They came back from the host that failed, to this machine, and are sent to the host again."""
    hosts.write_script(RESUMES)
    code, output = hosts.submit(
        "resumes", "--set", "platform_options.hosts=n3", "--set", "max_retry_attempts=1"
    )
    assert code == 0, output
    assert "found []" in output
    assert "found ['step-0']" in output
    assert sorted(path.name for path in (hosts.job("resumes") / "checkpoints").iterdir()) == [
        "step-0",
        "step-1",
    ]


def test_stacks_of_running_ranks(hosts: SshHosts) -> None:
    hosts.write_script(STACKS_SCRIPT)
    submit = ["cloudtrain", "submit", "src/train.py", "--source-dir", "src", "--name", "stacks", "--no-wait"]
    options = ["platform_options.hosts=n1:2,n2:2,n3:2", f"platform_options.ssh={hosts.ssh}", "stop_grace=1"]
    given = [part for option in options for part in ("--set", option)]
    hosts.run(*submit, "--platform", "hosts", *given).communicate(timeout=240)
    hosts.wait_for("stacks", "ready", 6)
    for _ in range(2):
        asked = hosts.run("cloudtrain", "stacks", "stacks", "--json")
        dump = json.loads(asked.communicate(timeout=240)[0])
        odd, others = dump["groups"]
        assert (odd["ranks"], odd["hosts"], odd["where"][-10:]) == ("3", ["n2"], "train.py:4")
        assert (others["ranks"], others["hosts"]) == ("0-2,4-5", ["n1", "n2", "n3"])
    hosts.run("cloudtrain", "stop", "stacks").communicate(timeout=240)


def test_this_machine_alone_needs_no_ssh(hosts: SshHosts) -> None:
    hosts.write_script('import os\nprint("rank", os.environ["RANK"], os.environ["SM_HOSTS"])\n')
    job = hosts.start("alone", {"hosts": "localhost:2", "ssh": "/nowhere/ssh"})
    job.wait()
    assert {f'[rank {rank}] rank {rank} ["localhost"]' for rank in range(2)} <= {*job.logs().splitlines()}


_AGENT = (
    "{python} -m torch.distributed.run --nnodes={hosts} --nproc-per-node={processes_per_host} --node-rank={host_rank}"
    " --master-addr={master_addr} --master-port={master_port} {program}"
)
LAUNCHERS: dict[str, dict[str, Any]] = {
    "torchrun": {"torch_distributed": {}},
    "mpirun-5": {"mpi": {}},
    "agent": {"agent": {"command": _AGENT}},
}
TRAINS = """
import torch
import cloudtrain.distributed.torch as hvd

hvd.init()
print("sum", int(hvd.allreduce(torch.ones(1) * hvd.rank(), op=hvd.Sum)), "of", hvd.size(), flush=True)
"""


@pytest.mark.soak
@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_works_from_there(hosts: SshHosts, name: str) -> None:
    """With PyTorch, and collectives between the hosts."""
    hosts.write_script(TRAINS)
    options = {"hosts": "n3:2,n1:2", "python": sys.executable}
    job = hosts.start(name, options, distribution=LAUNCHERS[name])
    job.wait()
    assert job.logs().count("sum 6 of 4") == 4, job.logs()


def test_run_in_the_foreground_until_ctrl_c(hosts: SshHosts) -> None:
    hosts.write_script(
        'import os, sys, time\nprint("ready", sys.argv[1:], os.environ["RANK"])\ntime.sleep(120)\n'
    )
    path = hosts.own / "bin"
    path.mkdir()
    (path / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {hosts.folder}/config "$@"\n')
    (path / "ssh").chmod(0o755)
    searched = f"{path}:{Path(sys.executable).parent}:{os.defpath}"
    process = hosts.run(
        *("cloudtrain", "run", "-np", "4", "-H", "n1:2,n3:2", "--send", "python", "src/train.py", "a b"),
        env={"PATH": searched},
    )
    assert process.stdout
    lines = {process.stdout.readline() for _ in range(4)}
    assert lines == {f"[rank {rank}] ready ['a b'] {rank}\n" for rank in range(4)}
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    assert "Ending all ranks" in errors
    assert process.returncode == 130, errors
    hosts.wait_for_silence()
