"""The program that a scheduler starts on every node of a job, to run the runtime of the host.

Usage: ``python cloudtrain.pyz cloudtrain.runtime.start.node FOLDER [NAME]``, with the folder of the job and the name
of the host, which defaults to the name of Slurm's node.

The step sends `messages` on its input: first a `NodeJob`, then the `Leader`, later `Signal`. Its output consists of
frames. The end of its input means that the step has ended, so the runtime has to end too.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from cloudtrain._system.descriptors import write_all
from cloudtrain._system.interfaces import interface_to
from cloudtrain._system.processes import exit_code, fork
from cloudtrain._system.safe_open import Beneath
from cloudtrain._system.signals import LINUX, SIGKILL, own_number, unblock
from cloudtrain.contract import Paths, Settings
from cloudtrain.contract.host import gpus_of_host
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.descendants import adopt_orphans, end_descendants
from cloudtrain.runtime.outer_variables import without_outer_allocation
from cloudtrain.runtime.ports import free_port
from cloudtrain.runtime.run_folder import RUN_RUNTIME
from cloudtrain.runtime.start.container_files import (
    NOT_STARTED,
    in_container,
    report_of,
    report_start,
    write_report,
)
from cloudtrain.runtime.start.messages import (
    READ_SIZE,
    Exit,
    Input,
    Leader,
    NodeJob,
    Signal,
    output_frames,
)
from cloudtrain.runtime.start.node_container import BY_SRUN
from cloudtrain.runtime.start.node_folder import (
    HostFolder,
    SentHostFolder,
    host_folder,
    local_folder,
    local_prefix,
)

assert sys.platform != "win32", "jobs run on Linux and macOS"

NAME = "SLURMD_NODENAME"
LARGEST_CONFIG = 64 << 20
ENDING_SECONDS = 10.0
"""How long the runtime may take to end its ranks after the connection has ended."""
ENDED = (0, 143)
"""The exit codes of a runtime whose outputs are kept: it has completed, or was stopped."""


def main() -> int:
    unblock((signal.SIGTERM,))  # see zipapp_main
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the step decides, and signals the runtime itself
    # scancel --signal reaches all processes on the nodes, but not the step. The runtime and its ranks handle SIGUSR1
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for ending in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, lambda got, _: _send(Signal(got).frames(0)))
    folder = Path(sys.argv[1])
    name = sys.argv[2] if len(sys.argv) > 2 else os.environ[NAME]
    given = Input()
    job = given.wait()
    assert isinstance(job, NodeJob), "the step sends the job first"
    number = job.names.index(name)
    settings = dict(job.settings)
    if len(job.names) > 1 and number == 0:
        _send(Leader(f"{name}:{free_port()}").frames(0))
    if not job.container:
        import_runtime()
    if len(job.names) > 1:
        leader = given.wait()
        if not isinstance(leader, Leader):  # a signal arrived, or the step has ended
            _send(Exit(-signal.SIGTERM).frames(number))
            return 0
        settings["CLOUDTRAIN_RENDEZVOUS"] = leader.address
    if number >= len(job.names) - job.spares:
        settings.update(Settings(spare=True).to_environ())
    if job.srun:
        launch = {"mpi": job.srun, "hosts": str(folder / "hosts"), "runtime": job.runtime}
        settings["CLOUDTRAIN_SRUN"] = json.dumps(list(launch.items()))
    in_srun = (
        job.container.get("engine") in BY_SRUN
    )  # already in the container, which contains only this host's folder of the job
    code = _run_host(Path(DEFAULT_BASE) if in_srun else folder / "hosts" / name, job, name, settings, given)
    _send(Exit(code).frames(number))
    return 0


def import_runtime() -> Callable[[], int]:
    """Import the main function of the runtime. This takes long, so the first node reports its port before it."""
    from cloudtrain.runtime.entrypoint import main

    return main


def _run_host(shared: Path, job: NodeJob, name: str, settings: Mapping[str, str], given: Input) -> int:
    """Run the runtime of a host, whose folder in the job's folder is ``shared``. Returns its exit code."""
    number = job.names.index(name)
    try:
        with local_folder(job.node_folder, local_prefix(sys.argv[1])) as local:
            folder = host_folder(shared, local, on_node=bool(job.node_folder))
            try:
                set_interface(Paths(folder.base), job, name)
                environment = runtime_environment(os.environ, job, settings, folder.base, local)
                command, environment = in_container(job, str(folder.base), str(local), environment)
                code = run(number, folder, environment, given, command)
                report_start(job.container, name, Paths(folder.base), code)
            finally:
                folder.close()
        return code
    except PlatformError as error:
        _send(output_frames(number, f"[cloudtrain] {error.message}".encode()))
        write_report(Paths(shared), report_of(name, error.message, error.hint, NOT_STARTED))
        return NOT_STARTED


def run_in_sent_folder(
    job: NodeJob, base: str, library: str, cache: str, given: Input, send: Callable[[bytes], object]
) -> None:
    """Run the runtime of a host that shares no folder with the job, and send its files and exit code back.

    Args:
        base: the folder of the host, with the files that were sent.
        library: the folder from which the runtime imports cloudtrain.
        cache: the folder of environments with installed requirements.
    """
    paths = Paths(Path(base))
    name = json.loads((paths.input_config / "resourceconfig.json").read_text())["current_host"]
    number = job.names.index(name)
    set_interface(paths, job, name)
    placed = {one: job.settings[one].replace("{base}", quote(base)) for one in job.in_base}
    python_path = os.pathsep.join(filter(None, [library, os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        **job.environment,
        **job.settings,
        **placed,
        "PYTHONPATH": python_path,
        "SAGEMAKER_BASE_DIR": base,
        "CLOUDTRAIN_RENDEZVOUS": f"{base}/leader",
        "CLOUDTRAIN_REQUIREMENTS_CACHE": cache,
        "CLOUDTRAIN_DIE_WITH_PARENT": str(os.getpid()),
    }
    environment.update(gpus_of_host(0, 1, environment))
    folder = SentHostFolder(paths.base, send, leads=number == 0)
    command = [sys.executable, "-c", RUN_RUNTIME, library]
    code = run(number, folder, environment, given, command, send, ENDING_SECONDS)
    folder.close()
    folder.send_outputs([*(job.outputs if code in ENDED or number == 0 else ()), "output/logs"])
    send(Exit(code).frames(number))


def set_interface(paths: Paths, job: NodeJob, name: str) -> None:
    """Write the network interface over which this node reaches the others into its configuration."""
    other = next((host for host in (job.names[0], *job.names[1:2]) if host != name), name)
    other = job.address or other
    interface = interface_to(other) or "lo" if job.interface == "auto" else job.interface
    key = paths.key(paths.input_config / "resourceconfig.json")
    with Beneath(paths.base) as base:
        document = json.loads(base.read(key, LARGEST_CONFIG))
        base.write(key, json.dumps({**document, "network_interface_name": interface}).encode())


def runtime_environment(
    environ: Mapping[str, str], job: NodeJob, settings: Mapping[str, str], base: Path, local: Path
) -> dict[str, str]:
    """The environment of the runtime and its ranks, without the variables of this process's task in the step."""
    clean, _ = without_outer_allocation(environ)
    values = {**clean, **job.environment}
    gpus = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS")
    if gpus and "CUDA_VISIBLE_DEVICES" not in values:
        values["CUDA_VISIBLE_DEVICES"] = gpus
    number = environ.get("SLURM_JOB_ID")
    return {
        **values,
        **({"CLOUDTRAIN_SLURM_JOB_ID": number} if number else {}),
        **settings,
        "CLOUDTRAIN_ATTEMPT": settings.get("CLOUDTRAIN_ATTEMPT", "0"),
        "CLOUDTRAIN_REQUIREMENTS_CACHE": str(local / "environments"),
        "SAGEMAKER_BASE_DIR": str(base),
        "CLOUDTRAIN_DIE_WITH_PARENT": str(os.getpid()),
    }


def run(
    number: int,
    folder: HostFolder,
    environment: Mapping[str, str],
    given: Input,
    command: Sequence[str] = (),
    send: Callable[[bytes], object] | None = None,
    ending_seconds: float = float("inf"),
) -> int:
    """Run the runtime to its end, forward its output and the leading process's messages, and return its exit code.

    Args:
        command: starts the runtime; without it, the runtime runs in a fork of this process.
        send: sends frames, by default to the standard output.
        ending_seconds: how long the runtime may take to end after the end of the input, before it is killed.
    """
    send = send or _send
    adopt_orphans()
    signal.signal(
        signal.SIGQUIT, signal.SIG_IGN
    )  # a request for stacks; the runtime inherits this until it has installed a handler
    output, target = os.pipe()
    # this process ignores SIGTERM, and so does the child at first; the runtime unblocks it when it has a handler
    pid = fork(held=(signal.SIGTERM,))
    if not pid:
        os.close(output)
        _be_runtime(folder.base, environment, target, command)
    os.close(target)
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        rest, is_open, code, kill_at = b"", True, None, float("inf")
        _obey(given, folder, pid, number)  # a stop may have arrived with the job
        while is_open or code is None:
            folder.copy()
            for key, _ in selector.select(0.05 if code is None else 0):
                if key.fd == 0:
                    given.fill()
                    _obey(given, folder, pid if code is None else 0, number)
                    continue
                data = os.read(output, READ_SIZE)
                *lines, rest = (rest + data).split(b"\n")
                send(b"".join(output_frames(number, line) for line in lines))
                if not data:
                    selector.unregister(output)
                    is_open = False
            if given.has_ended and 0 in selector.get_map():
                selector.unregister(0)
                _signal(pid if code is None else 0, own_number("SIGUSR2"))  # see `entrypoint.ORPHANED_SIGNAL`
                kill_at = time.monotonic() + ending_seconds
            if time.monotonic() > kill_at:
                _signal(pid if code is None else 0, SIGKILL)
            if code is None:
                code = exit_code(pid)
                if code is not None:
                    end_descendants()  # processes of a killed runtime may hold the pipe open
    if rest:
        send(output_frames(number, rest))
    os.close(output)
    return code


def _obey(given: Input, folder: HostFolder, pid: int, host: int) -> None:
    """Forward the messages of the leading process to the runtime."""
    for message in given.pending():
        if isinstance(message, Signal) and message.host in (-1, host):
            _signal(pid, own_number(LINUX.get(message.number, "")))
        elif isinstance(message, Leader):
            folder.take_leader(message.address)


def _signal(pid: int, number: int | None) -> None:
    if pid and number is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _be_runtime(base: Path, environment: Mapping[str, str], target: int, command: Sequence[str]) -> None:
    """Turn this forked process into the runtime."""
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(target, 1)
        os.dup2(target, 2)
        os.close(target)
        os.chdir(base)
        if command:
            os.execve(command[0], list(command), environment)
        os.environ.clear()
        os.environ.update(environment)
        code = import_runtime()()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _send(data: bytes) -> None:
    """Write to the step, which may have ended."""
    with contextlib.suppress(OSError):
        write_all(1, data)


if __name__ == "__main__":
    sys.exit(main())
