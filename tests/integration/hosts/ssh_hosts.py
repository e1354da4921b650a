"""Hosts with an ssh server, each with its own network, name and state folder; and a machine that submits jobs to them.

All see the files of this machine, except that the hosts find an empty folder in place of the client's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from host_network import Machine, Program
from linked_hosts import linked, missing

import cloudtrain
from cloudtrain import Estimator, Job

SSHD = "/usr/sbin/sshd"
PRIVILEGE_SEPARATION = Path("/run/sshd")

# bash reads the .bashrc of HOME for every command that comes over ssh. That of this machine's user may take a second,
# or wait for a lock that a host held when it was killed.
SERVER = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
SetEnv CLOUDTRAIN_HOME={folder}/state-{name} HOME={folder}/home-{name}
"""

CLIENT = """
Host {keyed}
  IdentityFile {folder}/key
Host *
  IdentitiesOnly yes
  StrictHostKeyChecking yes
  UserKnownHostsFile {folder}/known
  GlobalKnownHostsFile /dev/null
  ControlMaster no
"""


class SshHosts:
    """Hosts ``n1``, ``n2``, ... and the client, the last machine."""

    def __init__(self, machines: Sequence[Machine], folder: Path) -> None:
        *self.machines, self.client = machines
        self.folder = folder
        self.own = folder / "client"
        """The folder of the client, which the hosts do not see."""
        self.own.mkdir()
        self.names = [machine.name for machine in self.machines]
        for name in ("host_key", "other_host_key", "key", "other_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True)
        shutil.copy(folder / "key.pub", folder / "authorized")
        self.ssh = self.client_config("config", "host_key")
        self._servers: dict[str, Program] = {}
        for machine in self.machines:
            machine.hide(self.own)
            self.start_server(machine)

    def ssh_from_outside(self, config: str) -> str:
        """The ssh command for this process, which does not run on the client's machine."""
        return shlex.join(self.client.command(["ssh", "-F", str(self.folder / config)]))

    def client_config(self, name: str, host_key: str, extra: str = "", keyed: str = "*") -> str:
        """An ssh command whose configuration begins with ``extra``, and knows ``host_key`` for every host.

        ``keyed`` are the hosts for which it has the right key.
        """
        key = (self.folder / f"{host_key}.pub").read_text()
        known = self.folder / f"known-{name}"
        known.write_text("".join(f"{host} {key}" for host in self.names))
        config = self.folder / name
        text = CLIENT.format(folder=self.folder, keyed=keyed).replace(f"{self.folder}/known", str(known))
        config.write_text(extra + text)
        return f"ssh -F {config}"

    def start_server(self, machine: Machine) -> None:
        config = self.folder / f"sshd-{machine.name}"
        config.write_text(SERVER.format(folder=self.folder, name=machine.name))
        with (self.folder / f"sshd-{machine.name}.log").open("ab") as output:
            self._servers[machine.name] = machine.start(
                [SSHD, "-D", "-e", "-f", str(config)],
                cwd=Path("/"),
                env={"PATH": os.defpath},
                output=output,
            )
        deadline = time.monotonic() + 120
        while "listening" not in (self.folder / f"sshd-{machine.name}.log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def kill(self, name: str) -> None:
        """End a host with all of its processes, as a loss of power does."""
        self._servers[name].kill()

    def first_process(self, name: str) -> int:
        """The id, outside, of the ssh server of a host."""
        return self._servers[name].first_process

    def execute(self, name: str, *command: str) -> None:
        """Run a command where the ssh server of a host sees its files."""
        first = self.first_process(name)
        subprocess.run(["nsenter", f"--target={first}", "--mount", "--pid", "--", *command], check=True)

    def processes(self, name: str) -> list[str]:
        """The command lines of a host, without those of its ssh server."""
        return [command for _, command in self.running(name)]

    def running(self, name: str) -> Iterator[tuple[int, str]]:
        """Its processes, by their ids outside, with their command lines."""
        first = self.first_process(name)
        namespace = os.readlink(f"/proc/{first}/ns/pid")
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "ns/pid") == namespace:
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if "sshd" not in command.partition(" ")[0]:
                        yield int(process.name), command
            except OSError:
                continue

    def job(self, name: str) -> Path:
        """The folder of a job on the client."""
        return self.own / "home/jobs/hosts" / name

    def write_script(self, text: str) -> None:
        """Write ``src/train.py``, and ``src/helper.py``, which is empty."""
        (self.own / "src").mkdir(exist_ok=True)
        (self.own / "src/train.py").write_text(text)
        (self.own / "src/helper.py").touch()

    def submit(
        self, name: str, *options: str, ssh: str = "", env: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Submit the script. Returns the exit code and the output of the command."""
        process = self.run(
            *("cloudtrain", "submit", "src/train.py", "--source-dir", "src", "--name", name),
            *("--platform", "hosts", "--set", f"platform_options.ssh={ssh or self.ssh}", *options),
            env=env,
        )
        out, errors = process.communicate(timeout=120)
        return process.returncode, out + errors

    def start(self, name: str, options: Mapping[str, Any], **fields: Any) -> Job:
        """Submit the script from this process, without waiting. Its state has to be that of the client."""
        options = {"ssh": self.ssh_from_outside("config"), **options}
        estimator = Estimator(
            "train.py", source_dir=str(self.own / "src"), platform="hosts", platform_options=options, **fields
        )
        return estimator.fit(job_name=name, wait=False)

    def wait_for(self, name: str, text: str, count: int) -> None:
        """Wait until the log of a job has ``text`` ``count`` times."""
        deadline = time.monotonic() + 120
        log = self.job(name) / "job.log"
        while log.read_text().count(text) < count:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)

    def wait_for_silence(self) -> None:
        """Wait until no host runs anything but its ssh server."""
        deadline = time.monotonic() + 120
        while left := {name: found for name in self.names if (found := self.processes(name))}:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command of the client."""
        environ = {
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "HOME": str(self.own),
            "CLOUDTRAIN_HOME": str(self.own / "home"),
            "PYTHONPATH": str(Path(cloudtrain.__file__).parents[1]),
            **(env or {}),
        }
        return subprocess.Popen(
            self.client.command(["env", f"--chdir={self.own}", *command]),
            env=environ,
            cwd=self.own,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextmanager
def ssh_hosts(count: int, folder: Path, **options: str) -> Iterator[SshHosts]:
    """``count`` hosts and their client; ``options`` are those of `Network`."""
    if not Path(SSHD).exists():
        missing("there is no sshd (Debian: openssh-server)")
    PRIVILEGE_SEPARATION.mkdir(exist_ok=True)
    folder.chmod(0o755)
    with linked(count + 1, folder, **options) as machines:
        hosts = SshHosts(machines, folder)
        try:
            yield hosts
        finally:
            for name in hosts.names:
                hosts.kill(name)
