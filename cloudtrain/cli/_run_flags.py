"""The flags of ``cloudtrain run``: those of ``horovodrun`` and ``mpirun`` that are in common use.

Each flag has its usual effect, or is accepted with a note on why it has no effect here, or is refused with a hint. None
is ignored silently. A test compares the table in the guide with this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from cloudtrain._dataclass import dataclass


class Effect(Enum):
    """How a flag is handled."""

    OPTION = "option"
    """It sets a field of `cloudtrain.cli._run_options.RunOptions`, which ``target`` names."""
    VARIABLE = "variable"
    """It sets a variable for the ranks: ``target`` is ``NAME`` or ``NAME=VALUE``."""
    MPI = "mpi"
    """With ``--mpi``, it is passed to mpirun. Otherwise it has no effect."""
    HOLDS = "holds"
    """It requests behaviour that ``cloudtrain run`` always has."""
    NOTE = "note"
    """It has no effect, for the reason in ``text``."""
    REFUSED = "refused"
    """It is an error. ``text`` is what to do instead."""


@dataclass(frozen=True)
class Flag:
    """One flag with its synonyms, without their dashes."""

    names: tuple[str, ...]
    effect: Effect
    text: str
    values: int = 0
    """How many arguments it takes."""
    target: str = ""
    metavar: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """As they are documented. Long names are taken with one dash too, as mpirun does."""
        return tuple(_spelling(name) for name in self.names)


OPTION, VARIABLE, MPI, HOLDS, NOTE, REFUSED = Effect

_ELASTIC = (
    "Ranks do not come and go here. Start them with torchrun, which restarts them: "
    "torchrun --standalone --nproc-per-node N --max-restarts 3 train.py"
)
REAL_HOROVOD = "only a real Horovod reads it"


def _spelling(name: str) -> str:
    return (
        f"-{name}" if len(name) == 1 or name in ("np", "cb", "rf", "wd", "ppn", "am", "tv") else f"--{name}"
    )


def _option(names: str, target: str, text: str, metavar: str = "") -> Flag:
    return Flag(tuple(names.split()), OPTION, text, int(bool(metavar)), target, metavar)


def _variable(names: str, target: str, text: str, metavar: str = "") -> Flag:
    return Flag(tuple(names.split()), VARIABLE, text, int(bool(metavar)), target, metavar)


def _other(effect: Effect, names: str, text: str, values: int = 0, metavar: str = "") -> Flag:
    return Flag(tuple(names.split()), effect, text, values, "", metavar or " ".join(["VALUE"] * values))


SECTIONS: dict[str, tuple[Flag, ...]] = {
    "Ranks and hosts": (
        _option("np n num-proc c", "ranks", "the number of ranks. Default: the slots of the hosts, or the GPUs", "N"),
        _option("H hosts host", "hosts", "hosts with their slots: localhost:4", "HOST:SLOTS,..."),
        _option(
            "hostfile machinefile default-hostfile f", "hostfile",
            "a file with a host in each line, as for Open MPI, Horovod or MPICH", "FILE",
        ),
        _option("send", "send", "send the script to other machines, which share no folder with this one"),
        _option("N npernode", "per_host", "the number of ranks on each host", "N"),
        _option("ppn", "per_turn", "N ranks on each host in turn, whatever its slots are, as MPICH places them", "N"),
        _option("pernode", "one_per_host", "one rank on each host"),
        _option("oversubscribe", "oversubscribe", "more ranks than slots"),
        _other(HOLDS, "nooversubscribe", "more ranks than slots are refused unless you allow them"),
        _option("p ssh-port", "ssh_port", "the port of ssh on the other hosts", "PORT"),
        _option("i ssh-identity-file", "ssh_identity", "the private key for the other hosts", "FILE"),
        _other(HOLDS, "allow-run-as-root", "root may run ranks"),
    ),
    "Environment": (
        _option("x", "exports", "a variable for all ranks; NAME alone: the shell's value. Repeatable", "NAME[=VALUE]"),
        Flag(("genv",), OPTION, "as MPICH writes it: for all programs. Or NAME=VALUE", 2, "pairs", "NAME VALUE"),
        Flag(("env",), OPTION, "the same for one program; it overrides `-genv`", 2, "own_pairs", "NAME VALUE"),
        _option("genvlist envlist", "only", "of the shell's variables only these, and those of a login", "NAME,..."),
        _option("genvnone envnone", "bare", "no variables of the shell, except those of a login"),
        _other(HOLDS, "genvall envall", "ranks have the environment of the shell"),
        _option("wdir wd", "folder", "the working folder of the ranks", "FOLDER"),
        _variable(
            "network-interfaces network-interface nics iface",
            "GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME HOROVOD_GLOO_IFACE",
            "the network between ranks", "NAME,...",
        ),
    ),
    "Output": (
        _option("output-filename", "output", "also keep the output of each rank, in FOLDER/rank-N.log", "FOLDER"),
        _other(HOLDS, "tag-output prepend-rank l", "each line begins with its rank"),
        _other(HOLDS, "merge-stderr-to-stdout", "standard error of the ranks is part of their output"),
        _other(
            NOTE, "timestamp-output prefix-output-with-timestamp prefix-timestamp",
            "lines have no times: pipe them through ts",
        ),
        _other(NOTE, "stdin s", "rank 0 has the standard input, the others have none", 1),
        _option("verbose v display-map display-allocation", "verbose", "print the command of the ranks"),
        _other(NOTE, "report-bindings", "ranks are bound to no core"),
        _option("q quiet", "quiet", "do not print notes"),
        _option("check-build cb", "check_build", "print what is installed, and exit"),
        _option("V version", "version", "print the version, and exit"),
        _option("h help", "help", "print these flags, and exit"),
    ),
    "Horovod's settings": (
        _variable("fusion-threshold-mb", "HOROVOD_FUSION_THRESHOLD", "megabytes of gradients sent together", "MB"),
        _variable("cycle-time-ms", "HOROVOD_CYCLE_TIME", "milliseconds in which `poll` reports nothing", "MS"),
        _variable("timeline-filename", "HOROVOD_TIMELINE", "record a timeline", "FILE"),
        _variable("timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES=1", "mark steps in the timeline"),
        _variable("no-timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES=0", "the opposite"),
        _variable("autotune", "HOROVOD_AUTOTUNE=1", "try sizes for the buckets of gradients"),
        _variable("no-autotune", "HOROVOD_AUTOTUNE=0", "the opposite"),
        _variable("autotune-log-file", "HOROVOD_AUTOTUNE_LOG", "where to write the measurements", "FILE"),
        _variable("no-stall-check", "HOROVOD_STALL_CHECK_DISABLE=1", "do not warn of ranks that others wait for"),
        _variable("stall-check", "HOROVOD_STALL_CHECK_DISABLE=0", "the opposite"),
        _variable("stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", "when to warn", "S"),
        _variable("stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "when to fail", "S"),
        _variable("log-level", "HOROVOD_LOG_LEVEL", "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL", "LEVEL"),
        _variable(
            "start-timeout", "CLOUDTRAIN_START_TIMEOUT HOROVOD_START_TIMEOUT",
            "how long ranks wait for one another in `init`", "S",
        ),
        *(
            _variable(name, variable, REAL_HOROVOD, metavar)
            for name, variable, metavar in (
                ("cache-capacity", "HOROVOD_CACHE_CAPACITY", "N"),
                ("hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE=1", ""),
                ("no-hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE=0", ""),
                ("hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER=1", ""),
                ("no-hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER=0", ""),
                ("torus-allreduce", "HOROVOD_TORUS_ALLREDUCE=1", ""),
                ("no-torus-allreduce", "HOROVOD_TORUS_ALLREDUCE=0", ""),
                ("autotune-warmup-samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "N"),
                ("autotune-steps-per-sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "N"),
                ("autotune-bayes-opt-max-samples", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "N"),
                ("autotune-gaussian-process-noise", "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "X"),
                ("mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE=1", ""),
                ("no-mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE=0", ""),
                ("num-nccl-streams", "HOROVOD_NUM_NCCL_STREAMS", "N"),
                ("thread-affinity", "HOROVOD_THREAD_AFFINITY", "N"),
                ("gloo-timeout-seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", "S"),
                ("log-with-timestamp no-log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME=0", ""),
                ("log-without-timestamp log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME=1", ""),
            )
        ),
        _other(NOTE, "disable-cache", "no result of a check is kept"),
        _other(REFUSED, "config-file", "Write its settings as flags, or as variables HOROVOD_*.", 1, "FILE"),
    ),
    "MPI": (
        _option("mpi", "mpi", "mpirun starts the ranks: for scripts that use MPI, or a Horovod that was built for it"),
        _other(HOLDS, "gloo", "the default"),
        _other(REFUSED, "jsrun", "Use --mpi, with the mpirun of the cluster."),
        Flag(("mca", "gmca", "prtemca", "pmixmca"), MPI, "a setting of Open MPI", 2, "", "NAME VALUE"),
        _other(MPI, "bind-to", "`none` is the default", 1, "WHAT"),
        _other(MPI, "map-by", "`slot` is the default", 1, "WHAT"),
        _other(MPI, "rank-by", "`slot` is the default", 1, "WHAT"),
        _other(MPI, "cpus-per-proc cpus-per-rank", "cores for each rank", 1, "N"),
        _other(MPI, "use-hwthread-cpus", "hardware threads count as cores"),
        _option("mpi-args", "mpi_args", "options for mpirun, with `--mpi`", "OPTIONS"),
        _option("binding-args", "mpi_args", "the same", "OPTIONS"),
        _other(NOTE, "tcp", "ranks on one machine use loopback and shared memory"),
        _other(NOTE, "leave-session-attached", "ranks are always watched"),
        _other(NOTE, "prefix", "programs are found on the PATH", 1, "FOLDER"),
        _other(NOTE, "noprefix", "programs are found on the PATH"),
        _other(NOTE, "launcher", "other machines are reached through ssh", 1, "NAME"),
        _other(NOTE, "launcher-exec rmk", "other machines are reached through ssh", 1),
        _other(REFUSED, "rankfile rf", "Ranks are placed host by host, in the order of -H.", 1, "FILE"),
        _other(REFUSED, "app configfile", "Write the programs in one line, with a colon between them.", 1, "FILE"),
        _other(REFUSED, "timeout", "Write it in front: timeout SECONDS cloudtrain run ...", 1, "S"),
        _other(REFUSED, "path", "Set PATH, or name the program with its path.", 1, "FOLDER"),
        _other(REFUSED, "nolocal", "Name the hosts with -H."),
    ),
    "Elastic training": (
        _other(REFUSED, "min-np min-num-proc", _ELASTIC, 1, "N"),
        _other(REFUSED, "max-np max-num-proc", _ELASTIC, 1, "N"),
        _other(REFUSED, "slots-per-host slots", _ELASTIC, 1, "N"),
        _other(REFUSED, "host-discovery-script", _ELASTIC, 1, "FILE"),
        _other(REFUSED, "elastic-timeout", _ELASTIC, 1, "S"),
        _other(REFUSED, "reset-limit", _ELASTIC, 1, "N"),
        _other(REFUSED, "blacklist-cooldown-range", _ELASTIC, 2, "MIN MAX"),
    ),
}  # fmt: skip


def flags() -> Iterator[Flag]:
    for section in SECTIONS.values():
        yield from section


BY_NAME = {name: flag for flag in flags() for name in flag.names}
