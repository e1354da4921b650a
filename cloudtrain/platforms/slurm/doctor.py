"""Checks of a cluster that find, before a job is submitted, why it would wait forever or fail."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from cloudtrain.errors import CloudtrainError, PlatformError, nearest
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.batch.cluster import Cluster
from cloudtrain.platforms.batch.shell import Answer, Shell
from cloudtrain.platforms.checks import Check, Finding, Once, failed, ok, unknown, warning
from cloudtrain.platforms.slurm.directives import SlurmOptions
from cloudtrain.platforms.slurm.jobs import is_unconfigured, refused
from cloudtrain.platforms.slurm.profile import instance_type_notes
from cloudtrain.platforms.slurm.time_limits import (
    PARTITION_FORMAT,
    Partition,
    gpu_counts,
    limit_seconds,
    parse_configuration,
    parse_partitions,
    seconds_of,
)
from cloudtrain.spec import TrainingJob

COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
SKEW_SECONDS = 30.0
OLDEST = (20, 11)
"""The oldest version of Slurm whose srun has the options that a job needs."""

_TIME = re.compile(r"^#SBATCH --time=(\S+)", re.MULTILINE)

_SCRIPT = f"""LC_ALL=C; export LC_ALL
date +%s
for c in {" ".join(COMMANDS)}; do command -v $c || echo "no $c"; done
echo ---; sbatch --version 2>&1
echo ---; sinfo -h -o '{PARTITION_FORMAT}' 2>&1
echo ---; scontrol show config 2>&1
echo ---; python3 -c 'import sys; print(*sys.version_info[:3])' 2>&1
"""
"""Queries everything with one command."""


@dataclass(frozen=True)
class Facts:
    """The answers of a cluster."""

    skew: float
    """How many seconds its clock is ahead of this machine's."""
    missing: tuple[str, ...]
    """Commands that were not found."""
    version: str
    partitions: tuple[Partition, ...]
    complaint: str
    """The message of ``sinfo`` if it did not list partitions."""
    configuration: Mapping[str, str]
    python: str


def ask(shell: Shell) -> Facts:
    """The facts of the cluster. Raises PlatformError."""
    began = time.time()
    answer = shell.run(_SCRIPT)
    now = (began + time.time()) / 2
    parts = answer.text.split("\n---\n")
    if len(parts) != 5:
        raise PlatformError(
            f"{shell.place or 'this machine'} gave no answer that can be read: {answer.text[-200:]!r}"
        )
    first, *commands = parts[0].splitlines()
    partitions = tuple(parse_partitions(parts[2]))
    return Facts(
        skew=float(first) - now if first.isdigit() else 0.0,
        missing=tuple(line.removeprefix("no ") for line in commands if line.startswith("no ")),
        version=parts[1].strip(),
        partitions=partitions,
        complaint="" if partitions else parts[2].strip(),
        configuration=parse_configuration(parts[3]),
        python=parts[4].strip(),
    )


def checks(
    job: TrainingJob, request: Request | None, open_cluster: Callable[[], Cluster]
) -> Mapping[str, Check]:
    """All checks by name. ``job`` has the options of its profile."""
    options = SlurmOptions.of(job)

    def open_and_ask() -> tuple[Cluster, Facts]:
        cluster = open_cluster()
        return cluster, ask(cluster.shell)

    asked = Once(open_and_ask)

    def after(check: Callable[[Cluster, Facts], Finding]) -> Check:
        """A check of the facts; unknown without facts, in which case `check_cluster` reports why."""

        def run() -> Finding:
            try:
                cluster, facts = asked()
            except CloudtrainError:
                return unknown("the cluster cannot be asked")
            return check(cluster, facts)

        return run

    def of_slurm(check: Callable[[Cluster, Facts], Finding]) -> Check:
        """A check of facts from the controller; unknown if it does not answer."""
        return after(
            lambda cluster, facts: (
                unknown("Slurm does not answer") if facts.complaint else check(cluster, facts)
            )
        )

    found: dict[str, Check] = {
        "cluster": lambda: check_cluster(*asked()),
        "partitions": of_slurm(partial(check_partitions, job, options, request)),
        "gpus": of_slurm(partial(check_gpus, options)),
        "preemption": of_slurm(lambda _, facts: check_preemption(facts)),
        "accounting": of_slurm(lambda _, facts: check_accounting(facts)),
        "folder": after(check_folder),
        "python": after(lambda _, facts: check_python(options, facts)),
        "clock": after(lambda _, facts: check_clock(facts)),
    }
    if request:
        found["submission"] = after(partial(check_submission, request))
    for note in instance_type_notes(job):
        found["instance type"] = partial(warning, note)
    return found


def check_cluster(cluster: Cluster, facts: Facts) -> Finding:
    """Slurm's commands, and whether its controller answers."""
    where = cluster.login or "this machine"
    if "sbatch" in facts.missing:
        return failed(
            f"there is no sbatch on {where}",
            "Set platform_options.login to a login node of the cluster, or a profile of the config file."
            if not cluster.login
            else f"Is {cluster.login} a login node? Where do you run sbatch there?",
        )
    if facts.complaint and is_unconfigured(facts.complaint):
        error = refused(facts.complaint, cluster.login)
        return failed(error.message, error.hint)
    if facts.complaint:
        return failed(
            f"the controller of Slurm does not answer: {facts.complaint.splitlines()[-1]}",
            "If it stays so, ask the administrators of the cluster.",
        )
    version = re.search(r"(\d+)\.(\d+)\S*", facts.version)
    if version and (int(version[1]), int(version[2])) < OLDEST:
        return warning(f"{facts.version} on {where} is older than 20.11")
    others = [name for name in facts.missing if name != "sbatch"]
    if others:
        return warning(f"{facts.version} on {where} lacks {', '.join(others)}", "Install slurm-client.")
    return ok(f"{facts.version} on {where}")


def check_partitions(
    job: TrainingJob, options: SlurmOptions, request: Request | None, _cluster: Cluster, facts: Facts
) -> Finding:
    """The limits of the job's partitions."""
    known = {partition.name: partition for partition in facts.partitions}
    if not known:
        return unknown("there are no partitions that you may see")
    wanted = options.partition
    given = [] if wanted is None else wanted.split(",") if isinstance(wanted, str) else wanted
    names = [*given] or [partition.name for partition in facts.partitions if partition.is_default]
    if not names:
        return failed(
            "the cluster has no default partition",
            f"Set platform_options.partition. Known: {', '.join(known)}.",
        )
    problems = []
    for name in names:
        if name not in known:
            return failed(f"there is no partition {name}", nearest(name, known))
        if not (problem := _too_small(known[name], job, request)):
            return ok(known[name].described())
        problems.append(problem)
    return failed(
        "; ".join(problems),
        f"Such a job waits forever. Change it, or choose another partition: {', '.join(known)}.",
    )


def _too_small(partition: Partition, job: TrainingJob, request: Request | None) -> str:
    """Why the job can never start in ``partition``; empty if it can."""
    if not partition.is_up:
        return f"the partition {partition.name} is {partition.availability}"
    if job.host_count > partition.nodes:
        return (
            f"the job wants {job.host_count} nodes, and the partition {partition.name} has {partition.nodes}"
        )
    limit = seconds_of(partition.limit)
    asked = _TIME.search(request.body["script"]) if request else None
    seconds = limit_seconds(asked[1]) if asked else None
    if limit is not None and seconds is not None and seconds > limit:
        return (
            f"the partition {partition.name} ends jobs after {partition.limit}, and the job asks for "
            f"{seconds / 60:g} min, with the time for its end"
        )
    return ""


def check_gpus(options: SlurmOptions, _cluster: Cluster, facts: Facts) -> Finding:
    """The GPUs of the nodes, by type."""
    counts: dict[str, int] = {}
    for partition in facts.partitions:
        for kind, count in gpu_counts(partition.gres).items():
            counts[kind] = max(count, counts.get(kind, 0))
    shown = ", ".join(f"{count} {kind or 'of no type'}" for kind, count in sorted(counts.items()))
    if options.gpus is None:
        return ok(f"GPUs of a node: {shown or 'none'}")
    if not counts:
        return failed("no node has GPUs, as far as Slurm knows", "Remove platform_options.gpus.")
    if options.gpu_type and options.gpu_type not in counts:
        kinds = [kind for kind in counts if kind]
        return failed(
            f"no node has GPUs of the type {options.gpu_type}",
            nearest(options.gpu_type, kinds) if kinds else "The GPUs have no type: remove gpu_type.",
        )
    most = counts[options.gpu_type] if options.gpu_type else max(counts.values())
    if options.gpus > most:
        return failed(
            f"a node has {most} GPUs, and the job wants {options.gpus} on each",
            "gpus counts those of one node: use more nodes (instance_count) with fewer GPUs.",
        )
    return ok(f"GPUs of a node: {shown}")


def check_preemption(facts: Facts) -> Finding:
    """The cluster's way of preempting jobs."""
    mode = facts.configuration.get("PreemptMode", "OFF").upper()
    requeues = facts.configuration.get("JobRequeue", "1") == "1"
    if "OFF" in mode.split(","):
        return ok("no job is preempted (PreemptMode=OFF)")
    if "CANCEL" in mode.split(",") or not requeues:
        return ok(
            f"a preempted job is cancelled (PreemptMode={mode}, JobRequeue={int(requeues)})",
            "cloudtrain submits it again, and it resumes from its last checkpoint.",
        )
    return ok(f"a preempted job goes back to the queue (PreemptMode={mode})")


def check_accounting(facts: Facts) -> Finding:
    """Whether Slurm keeps records of jobs that have ended."""
    storage = facts.configuration.get("AccountingStorageType", "")
    if storage.endswith("slurmdbd"):
        return ok("sacct explains how jobs ended")
    return ok(
        f"the cluster has no accounting: {facts.configuration.get('MinJobAge', '300 sec')} after its end, Slurm has "
        "forgotten a job",
        "The outcome of a job is in its folder. Only the reason for a lost node may be missing.",
    )


def check_folder(cluster: Cluster, _facts: Facts) -> Finding:
    """The folder for jobs: whether it can be written, and whether it looks shared."""
    folder = shlex.quote(cluster.folder)
    command = f"""LC_ALL=C; export LC_ALL
d={folder}; while [ ! -d "$d" ]; do d=$(dirname "$d"); done
t=$(mktemp "$d/.cloudtrain-check-XXXXXX") || exit 1
rm "$t"; df -P "$d" | tail -n 1; stat -f -c %T "$d" 2>/dev/null"""
    answer = cluster.shell.run(command)
    if answer.code:
        return failed(
            f"{cluster.folder} cannot be written: {_last(answer)}",
            "Set platform_options.folder to a folder of yours that all nodes share, such as $SCRATCH/cloudtrain.",
        )
    lines = answer.text.splitlines()
    columns = lines[0].split() if lines else []
    free = int(columns[3]) * 1024 if len(columns) > 3 and columns[3].isdigit() else None
    kind = lines[1] if len(lines) > 1 else ""
    if free is not None and free < 1 << 30:
        return warning(
            f"{cluster.folder} has {free / 2**20:.0f} MiB left",
            "Free space there, or set platform_options.folder.",
        )
    if kind in ("tmpfs", "ramfs"):
        return warning(
            f"{cluster.folder} is in the memory of one machine ({kind})",
            "All nodes must see it: set platform_options.folder to a shared file system.",
        )
    left = "" if free is None else f", {free / 2**30:.0f} GiB left"
    return ok(f"{cluster.folder} can be written ({kind or 'unknown file system'}{left})")


def check_python(options: SlurmOptions, facts: Facts) -> Finding:
    """The Python that starts the runtime, which is usually the same on the nodes as on the login node."""
    if options.python or options.modules or options.prologue:
        name = options.python or "python3"
        return ok(f"the job starts {name} in the environment that its options set up")
    version = facts.python.split()
    if len(version) == 3 and all(part.isdigit() for part in version):
        shown = ".".join(version)
        if (int(version[0]), int(version[1])) >= (3, 9):
            return ok(f"python3 is Python {shown} here; the nodes usually have the same")
        found = f"python3 is Python {shown}"
    else:
        found = "there is no python3"
    return warning(
        f"{found} on the machine that submits, so probably on the nodes too",
        "Set platform_options.python to Python 3.9 or newer there, or load it with platform_options.modules.",
    )


def check_clock(facts: Facts) -> Finding:
    """The difference between the clocks: times in descriptions are those of the cluster."""
    if abs(facts.skew) <= SKEW_SECONDS:
        return ok("the clocks agree")
    relation = "ahead of" if facts.skew > 0 else "behind"
    return warning(
        f"the clock of the cluster is {abs(facts.skew):.0f} s {relation} that of this machine",
        "Durations of running jobs are wrong by that: correct the clock that is wrong, with NTP.",
    )


def check_submission(request: Request, cluster: Cluster, facts: Facts) -> Finding:
    """Slurm's own test of the job's script, which is not queued."""
    if facts.missing or facts.complaint:
        return unknown("Slurm cannot be asked")
    script: str = request.body["script"]
    answer = cluster.shell.run("cd / && sbatch --test-only", stdin=script.encode())
    said = _last(answer).removeprefix("sbatch: ").removeprefix("error: ")
    if answer.code:
        return failed(
            f"Slurm does not take the job: {said.removeprefix('allocation failure: ')}",
            "Check platform_options.",
        )
    return ok(f"Slurm takes it: {said}" if said else "Slurm takes it")


def _last(answer: Answer) -> str:
    lines = (answer.complaint or answer.text).splitlines()
    return lines[-1].strip() if lines else f"exit code {answer.code}"
