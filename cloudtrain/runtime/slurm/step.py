"""The batch step of a job on Slurm, on its first node.

Usage: ``python cloudtrain.pyz cloudtrain.runtime.slurm.step FOLDER [--element]``. FOLDER is the job folder; with
``--element``, that of an element of an array, without the number at the end of its name.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from cloudtrain.errors import PlatformError
from cloudtrain.runtime.batch.start import NODE, srun_command
from cloudtrain.runtime.slurm.container import StepContainer, is_started_by_srun
from cloudtrain.runtime.slurm.continuation import SlurmContinuation
from cloudtrain.runtime.start.allocation import expand_nodelist
from cloudtrain.runtime.start.node_folder import removal_script
from cloudtrain.runtime.supervisor.batch_step import job_number, run_step
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.node_hosts import NodeHosts
from cloudtrain.storage.atomic import replace_file

REMOVAL = "node-epilog.sh"
"""The script in the job folder that removes the remains of a killed node program from its node."""


class SlurmHosts(NodeHosts):
    """The nodes in Slurm's order, which follows the topology of the network."""

    noise = (b"srun: cluster configuration lacks support for cpu binding",)

    def __init__(
        self, folder: JobFolder, secrets: Mapping[str, str], longest_grace: Callable[[], float]
    ) -> None:
        names = expand_nodelist(os.environ.get("SLURM_JOB_NODELIST", ""))
        super().__init__(folder, names, secrets)
        self._longest_grace = longest_grace
        self.resources = granted(os.environ)
        self._step_container: StepContainer | None = None

    def longest_grace(self) -> float:
        return self._longest_grace()

    def command(self) -> list[str]:
        srun = shutil.which("srun")
        if srun is None:
            raise PlatformError(
                f"there is no srun on {self.names[0]}",
                hint="Add the line that puts it on the PATH to platform_options.prologue or modules.",
            )
        folder = str(self._folder.path)
        program = [NODE, folder]
        removal = self._folder.path / REMOVAL
        script = removal_script(folder, self._request.get("node_folder", ""))
        replace_file(removal, script.encode(), mode=0o700)
        nodes = [*self.names, *self.spares]
        step = {
            "cpus": self._request.get("cpus_per_task"),
            "more": self._request.get("srun", ()),
            "only": nodes if self.may_lose_some else (),
        }
        if is_started_by_srun(self._request):
            base = srun_command(srun, len(nodes), [], **step)
            self._step_container = StepContainer(base, self._request, self._folder.path)
            self._step_container.begin()
            return self._step_container.command(program)
        program = [sys.executable, self._request["bundled_runtime"], *program]
        return srun_command(srun, len(nodes), program, epilog=removal, **step)

    def finish(self, *, failed: bool) -> None:
        super().finish(failed=failed)
        if self._step_container:
            with contextlib.suppress(PlatformError, subprocess.TimeoutExpired):  # a node is lost
                self._step_container.end()
            self._step_container = None


def granted(environ: Mapping[str, str]) -> str:
    """The processors and the memory of each node of a job, from the variables of its batch step.

    Excludes the memory if Slurm does not limit it.
    """
    cpus = [
        int(number)
        for number in re.findall(r"(\d+)(?:\(x\d+\))?(?:,|$)", environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    ]
    if not cpus:
        return ""
    most = f"{min(cpus)} to {max(cpus)}" if len({*cpus}) > 1 else f"{cpus[0]}"
    parts = [f"{most} CPU{'s' if max(cpus) > 1 else ''}"]
    per = {"SLURM_MEM_PER_NODE": 1, "SLURM_MEM_PER_CPU": min(cpus), "SLURM_MEM_PER_GPU": _gpus(environ)}
    for name, count in per.items():
        value = environ.get(name, "")
        if value.isdigit() and count:
            size = int(value) * count
            amount = f"{size / 1024:.3g} GB" if size >= 1024 else f"{size} MB"
            parts.append(f"{amount} of memory" if size else "all memory")
    return ", ".join(parts)


def _gpus(environ: Mapping[str, str]) -> int:
    found = re.search(
        r"(\d+)$", environ.get("SLURM_GPUS_PER_NODE", "") or environ.get("SLURM_GPUS_ON_NODE", "")
    )
    return int(found[1]) if found else 0


def make_continuation(folder: JobFolder) -> SlurmContinuation:
    requeue = folder.read_request().get("requeue", "never")
    return SlurmContinuation(folder, job_number(), requeue=requeue)


def job_folder(arguments: Sequence[str]) -> Path:
    """The job folder, which for an element of an array ends with its number."""
    element = f"-{os.environ['SLURM_ARRAY_TASK_ID']}" if "--element" in arguments else ""
    return Path(arguments[0] + element)


def main(arguments: Sequence[str]) -> int:
    folder = job_folder(arguments)

    @cache
    def continuation() -> SlurmContinuation:
        return make_continuation(JobFolder(folder))

    def make_hosts(job: JobFolder, secrets: Mapping[str, str]) -> SlurmHosts:
        return SlurmHosts(job, secrets, continuation().ask_grace())

    return run_step(folder, job_number(), make_hosts, lambda _: continuation())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
