"""The command line of ``cloudtrain run``: the flags that horovodrun and mpirun list, and the program behind them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cloudtrain.cli._run import rank_count, ranks_of_hosts
from cloudtrain.cli._run_flags import BY_NAME, SECTIONS, Effect, Flag, flags
from cloudtrain.cli._run_options import RunOptions, parse
from cloudtrain.cli._run_program import RankProgram, rank_program
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.hosts.host_list import parse_hosts

HOROVODRUN = [
    "v",
    "np",
    "num-proc",
    "cb",
    "check-build",
    "disable-cache",
    "start-timeout",
    "network-interfaces",
    "network-interface",
    "output-filename",
    "verbose",
    "config-file",
    "p",
    "ssh-port",
    "i",
    "ssh-identity-file",
    "fusion-threshold-mb",
    "cycle-time-ms",
    "cache-capacity",
    "hierarchical-allreduce",
    "no-hierarchical-allreduce",
    "hierarchical-allgather",
    "no-hierarchical-allgather",
    "torus-allreduce",
    "no-torus-allreduce",
    "autotune",
    "no-autotune",
    "autotune-log-file",
    "autotune-warmup-samples",
    "autotune-steps-per-sample",
    "autotune-bayes-opt-max-samples",
    "autotune-gaussian-process-noise",
    "min-np",
    "min-num-proc",
    "max-np",
    "max-num-proc",
    "slots-per-host",
    "elastic-timeout",
    "reset-limit",
    "blacklist-cooldown-range",
    "timeline-filename",
    "timeline-mark-cycles",
    "no-timeline-mark-cycles",
    "no-stall-check",
    "stall-check",
    "stall-check-warning-time-seconds",
    "stall-check-shutdown-time-seconds",
    "mpi-threads-disable",
    "no-mpi-threads-disable",
    "mpi-args",
    "tcp",
    "binding-args",
    "num-nccl-streams",
    "thread-affinity",
    "gloo-timeout-seconds",
    "log-level",
    "log-with-timestamp",
    "log-without-timestamp",
    "prefix-timestamp",
    "prefix-output-with-timestamp",
    "log-hide-timestamp",
    "no-log-hide-timestamp",
    "H",
    "hosts",
    "hostfile",
    "host-discovery-script",
    "gloo",
    "mpi",
    "jsrun",
]
"""All options of ``horovodrun`` 0.28.1 (horovod/runner/launch.py)."""

OPEN_MPI = [
    "allow-run-as-root",
    "bind-to",
    "c",
    "np",
    "n",
    "H",
    "host",
    "hostfile",
    "machinefile",
    "default-hostfile",
    "map-by",
    "rank-by",
    "mca",
    "gmca",
    "N",
    "npernode",
    "pernode",
    "nolocal",
    "nooversubscribe",
    "oversubscribe",
    "output-filename",
    "path",
    "prefix",
    "noprefix",
    "q",
    "quiet",
    "report-bindings",
    "rf",
    "rankfile",
    "stdin",
    "tag-output",
    "timeout",
    "timestamp-output",
    "use-hwthread-cpus",
    "v",
    "verbose",
    "V",
    "version",
    "wd",
    "wdir",
    "x",
    "cpus-per-proc",
    "cpus-per-rank",
    "display-map",
    "display-allocation",
    "merge-stderr-to-stdout",
    "leave-session-attached",
    "app",
]
"""Options of Open MPI 4.1.4 (``mpirun --help all``), without those for debugging Open MPI and its daemons."""

MPICH = [
    "genv",
    "genvlist",
    "genvnone",
    "genvall",
    "f",
    "hosts",
    "wdir",
    "configfile",
    "env",
    "envlist",
    "envnone",
    "envall",
    "n",
    "np",
    "launcher",
    "launcher-exec",
    "rmk",
    "bind-to",
    "map-by",
    "verbose",
    "iface",
    "ppn",
    "prepend-rank",
]
"""Options of MPICH 4.0.2 (``mpiexec.hydra --help``), of the same kind."""


@pytest.mark.parametrize("names", [HOROVODRUN, OPEN_MPI, MPICH], ids=["horovodrun", "Open MPI", "MPICH"])
def test_every_flag_of_other_launchers_is_accepted_or_refused_by_name(names: list[str]) -> None:
    assert [name for name in names if name not in BY_NAME] == []


def test_no_flag_is_there_twice_and_each_does_something() -> None:
    assert len(BY_NAME) == sum(len(flag.names) for flag in flags())
    fields = {*vars(RunOptions()), "exports", "pairs", "own_pairs", "only", "mpi_args"}
    for flag in flags():
        assert flag.text, flag.names
        if flag.effect == Effect.OPTION:
            assert flag.target in fields, flag.names
        assert (flag.effect in (Effect.OPTION, Effect.VARIABLE)) == bool(flag.target), flag.names


@pytest.mark.parametrize("flag", list(flags()), ids=lambda flag: flag.names[0])
def test_each_flag_is_honoured_noted_or_refused(flag: Flag) -> None:
    for name in flag.names:
        for dashes in ("-",) if len(name) == 1 else ("-", "--"):
            line = [dashes + name, *["1"] * flag.values, "python", "-u", "train.py", "-np", "3"]
            if flag.effect == Effect.REFUSED:
                with pytest.raises(InvalidJob, match=f"run does not take {dashes}{name}") as caught:
                    parse(line)
                assert caught.value.hint
                continue
            options = parse(line)
            assert options.program == ["python", "-u", "train.py", "-np", "3"]
            changed = {
                key: value for key, value in vars(options).items() if value != getattr(RunOptions(), key)
            }
            expected = flag.effect != Effect.HOLDS
            assert (changed.keys() > {"program"}) == expected, (name, changed)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("-np 4 x", "ranks", 4),
        ("--num-proc=4 x", "ranks", 4),
        ("-np=4 x", "ranks", 4),
        ("-n4 x", "ranks", 4),
        ("--n 4 x", "ranks", 4),
        ("-H=b:2 x", "hosts", "b:2"),
        ("-p2222 x", "ssh_port", 2222),
        ("-x A=b=c -x D= x", "variables", {"A": "b=c", "D": ""}),
        ("-genv A b -x OF_SHELL x", "variables", {"A": "b", "OF_SHELL": "yes"}),
        ("-genv A=b=c -genv B=d -env E=f x", "variables", {"A": "b=c", "B": "d", "E": "f"}),
        ("-genv=A=b x", "variables", {"A": "b"}),
        ("-env A 1 -genv A 2 x", "variables", {"A": "1"}),
        ("-genvlist OF_SHELL,NOT_SET x", "variables", {"OF_SHELL": "yes"}),
        ("-genvnone x", "bare", True),
        ("-x NOT_SET x", "notes", ["-x NOT_SET has no effect: the variable is not set in this shell"]),
        ("--fusion-threshold-mb 32 x", "variables", {"HOROVOD_FUSION_THRESHOLD": "33554432"}),
        ("--timeline-filename t.json x", "variables", {"HOROVOD_TIMELINE": "t.json"}),
        ("--log-level INFO x", "variables", {"HOROVOD_LOG_LEVEL": "info"}),
        ("-bind-to none -map-by slot --allow-run-as-root --gloo x", "notes", []),
        ("-bind-to core x", "notes",
         ["-bind-to core has no effect: it is for mpirun, which starts the ranks with --mpi"]),
        ("--mpi -bind-to core -mca pml ob1 x", "mpi_options", ["--bind-to", "core", "--mca", "pml", "ob1"]),
        ("--cache-capacity 9 x", "notes", ["--cache-capacity 9: only a real Horovod reads it"]),
        ("-np 2 -- x", "program", ["x"]),
        ("-np 2 x -- -np 4", "program", ["x", "--", "-np", "4"]),
        ("-np 2 -- x : y", "program", ["x", ":", "y"]),
        ("-np 2 x a:b :c", "program", ["x", "a:b", ":c"]),
    ],
)  # fmt: skip
def test_a_command_line(line: str, field: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_SHELL", "yes")
    monkeypatch.delenv("NOT_SET", raising=False)
    assert getattr(parse(line.split()), field) == value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--fussion-threshold-mb 3 x",
            r"run has no flag --fussion-threshold-mb. Did you mean '--fusion-threshold-mb'",
        ),
        ("--nproc 3 x", "run has no flag --nproc"),
        ("-np x", "-np x: not a whole number from 1 to 65535"),
        ("-np 0 x", "-np 0: not a whole number"),
        ("-np", "-np needs a value"),
        ("-mca pml", "-mca needs a value"),
        ("--mpi=yes x", "--mpi takes no values"),
        ("-x =b x", "'' is not a name of a variable"),
        ("--min-np 2 x", "run does not take --min-np"),
        ("-np 1 x : y", "y, one of 2 programs, has no number of ranks"),
        ("x : -np 1 y", "x, one of 2 programs, has no number of ranks"),
        ("-np 1 x :", "there is no program 2 of 2"),
        ("-np 1 x : : -np 1 y", "there is no program 2 of 3"),
        ("-np 1 x : --mpi -np 1 y", "--mpi is for all programs"),
        ("-np 1 x : -np 1 torchrun y", "torchrun starts its own world"),
    ],
)
def test_a_wrong_command_line_is_one_error(line: str, message: str) -> None:
    with pytest.raises(InvalidJob, match=message) as caught:
        parse(line.split())
    assert caught.value.hint


def test_each_program_has_its_own_ranks_variables_and_folder() -> None:
    line = "-genv G 0 -x A=1 -np 1 x -n 3 : -env B 2 -wdir f -np 2 y : -genv H=3 --tag-output -n 4 z a"
    first, second, third = (options := parse(line.split())), *options.others
    assert [each.program for each in (first, second, third)] == [["x", "-n", "3"], ["y"], ["z", "a"]]
    assert [each.ranks for each in (first, second, third)] == [1, 2, 4]
    assert [each.own_variables for each in (first, second, third)] == [{"A": "1"}, {"B": "2"}, {}]
    assert [each.folder for each in (first, second, third)] == ["", "f", ""]
    assert first.variables == {"G": "0", "H": "3"}
    assert rank_count(options, []) == 7


@pytest.mark.parametrize(
    ("line", "placed"),
    [
        ("-ppn 2 -np 6 -hosts a,b x", {"a": [0, 1, 4, 5], "b": [2, 3]}),
        ("-ppn 1 -np 4 -hosts a:4,b:4 x", {"a": [0, 2], "b": [1, 3]}),
        ("-ppn 3 -hosts a:4,b:4 x", {"a": [0, 1, 2], "b": [3, 4, 5]}),
        ("-ppn 1 -hosts a,b -np 2 x : -np 1 y", {"a": [0, 2], "b": [1]}),
        ("-ppn 4 -np 2 -hosts a,b x", {"a": [0, 1]}),
        ("-N 2 -np 3 -hosts a,b x", {"a": [0, 1], "b": [2]}),
        ("-np 3 -H a:2,b:2 x", {"a": [0, 1], "b": [2]}),
    ],
)
def test_the_ranks_of_each_host(line: str, placed: dict[str, list[int]]) -> None:
    """With ``-ppn`` as hydra 4.0.2 has placed them, for each of these lines."""
    options = parse(line.split())
    assert ranks_of_hosts(options, parse_hosts(options.hosts, "-H")) == placed


@pytest.mark.parametrize(
    ("line", "ranks"),
    [("-np 3 x", 3), ("-H localhost:4 x", 4), ("-H localhost:4 -np 2 x", 2), ("-H localhost -np 9 x", 9),
     ("-H localhost:2 -np 4 --oversubscribe x", 4), ("-npernode 3 x", 3), ("-pernode x", 1),
     ("-ppn 2 x", 2), ("-ppn 2 -np 5 x", 5)],
)  # fmt: skip
def test_the_number_of_ranks(line: str, ranks: int) -> None:
    options = parse(line.split())
    assert rank_count(options, parse_hosts(options.hosts, "-H") if options.hosts else []) == ranks


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-H localhost:2 -np 4 x", "-np 4 is more than the 2 slots"),
        ("-npernode 2 -np 4 x", "-np 4 is more than 2 on this host"),
        ("x", "the number of ranks is not given"),
    ],
)
def test_no_number_of_ranks(line: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    options = parse(line.split())
    with pytest.raises(InvalidJob, match=message):
        rank_count(options, parse_hosts(options.hosts, "-H") if options.hosts else [])


def test_the_program_as_ranks_start_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    Path("train.py").write_text("pass")
    Path("go").write_text("#!/bin/sh\n")
    Path("go").chmod(0o755)
    Path("app.zip").write_bytes(b"PK\3\4")
    python = str(Path(sys.executable).parent / "python")
    assert rank_program(["python", "-u", "train.py", "--x"]) == RankProgram(
        python, ["-u"], ["train.py", "--x"]
    )
    assert rank_program(["python", "-X", "dev", "-Wi", "-m", "a.b", "c"]) == RankProgram(
        python, ["-X", "dev", "-Wi"], ["-m", "a.b", "c"]
    )
    assert rank_program(["train.py", "a"]).arguments == ["train.py", "a"]
    assert rank_program(["./go", "-m"]).arguments == ["--", "./go", "-m"]
    for rest in (["-c", "pass"], ["-I", "train.py"], ["-i", "train.py"], ["app.zip"], ["."], ["-"], []):
        assert rank_program(["python", *rest]).arguments == ["--", python, *rest]


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (["nothing"], "there is no program 'nothing'", "Name the program after the flags"),
        (["train.sh"], "there is no program 'train.sh'", "sh train.sh"),
        (["go"], "there is no program 'go'", "Write ./go"),
        (["python", "gone.py"], r"there is no file 'gone\.py' in ", "Check the path"),
        (["python", "-m"], "needs the name of a module", "python -m package"),
    ],
)
def test_no_such_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], message: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.sh").write_text("echo")
    Path("go").write_text("#!/bin/sh\n")
    Path("go").chmod(0o755)
    with pytest.raises(InvalidJob, match=message) as caught:
        rank_program(command)
    assert hint in caught.value.hint


PREFIXES = {"refused": "refused: ", "note": "no effect: ", "holds": "always so: ", "mpi": "with `--mpi`: "}
"""In the guide, in front of the text of a flag with this effect."""


def test_the_guide_lists_every_flag() -> None:
    page = (Path(__file__).parents[3] / "docs/guides/horovod.md").read_text()
    lines = [line for line in page.partition("## Flags")[2].splitlines() if line.startswith(("#### ", "| `"))]
    expected = []
    for title, listed in SECTIONS.items():
        expected.append(f"#### {title}")
        for flag in listed:
            names = ", ".join(f"`{spelling}`" for spelling in flag.spellings)
            effect = PREFIXES.get(flag.effect.value, "") + flag.text
            expected.append(f"| {f'{names} {flag.metavar}'.strip()} | {effect} |")
    assert lines == expected
