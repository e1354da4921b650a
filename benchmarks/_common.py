"""Code shared by all benchmarks: their arguments, their timing, and the figures that they print.

Only ratios of measurements from the same run are meaningful, because machines and their load differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

Name = TypeVar("Name")

REPOSITORY = Path(__file__).parents[1]
TESTS = REPOSITORY / "tests"
TEST_FOLDERS = [str(TESTS), *map(str, sorted(TESTS.glob("integration/*/")))]
"""The folders of the modules that the tests share, for ``sys.path``. They start real clusters, servers and hosts."""
PEERS = Path.home() / ".cache" / "cloudtrain-bench"
"""The environments of the peers, and the figures of the last run on this machine."""

OURS = "cloudtrain"
SMOKE_TEST = "CLOUDTRAIN_BENCHMARK_SMOKE_TEST"
"""The variable that ``--quick`` sets: nothing is installed, so peers that need an installation are left out."""
RANK = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK", "")
"""The rank of this process, if it is a rank of a benchmark. Only rank 0 prints."""
SCALES = {
    "s": ((1.0, "s", 0.01), (1e3, "ms", 1e-5), (1e6, "us", 0.0)),
    "B": ((2.0**-30, "GiB", 2.0**30), (2.0**-20, "MiB", 0.0)),
    "B/s": ((1e-9, "GB/s", 0.0),),
}
"""For each unit, the units in which values are shown: a factor, a name, and the smallest value that is shown in it."""
MORE_IS_BETTER = ("B/s", "lines/s", "%")


class PeerMissing(Exception):
    """A peer cannot take part. The message is the reason."""


@dataclass(frozen=True)
class Figure:
    """The measurements of one contestant, in several runs."""

    what: str
    who: str
    values: tuple[float, ...]
    unit: str = "s"
    """``s``, ``B``, or any other unit, which is printed after the number."""
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def lowest(self) -> float:
        return min(self.values)

    def shown(self, value: float) -> str:
        for factor, unit, least in SCALES.get(self.unit, ()):
            if self.median >= least:
                return f"{value * factor:.3f} {unit}"
        return f"{value:,.4g} {self.unit}".rstrip()

    def __str__(self) -> str:
        middle = self.shown(self.median)
        if len(self.values) == 1:
            return middle
        lowest, highest = (self.shown(value).split()[0] for value in (min(self.values), max(self.values)))
        return f"{middle} ({lowest} to {highest})"

    def ratio(self, ours: Figure) -> float | None:
        """How many times better ``ours`` is; None if one of the medians is 0."""
        if not ours.median or not self.median:
            return None
        times = self.median / ours.median
        return 1 / times if self.unit in MORE_IS_BETTER else times


TABLE_HEAD = "| what | who | median (min to max) | times cloudtrain's | |\n| --- | --- | --- | --- | --- |"


def table_row(figure: Figure, ours: Figure | None) -> str:
    """A row of a Markdown table, with the figure compared with ``ours``."""
    ratio = figure.ratio(ours) if ours and ours is not figure and ours.unit == figure.unit else None
    cells = (figure.what, figure.who, str(figure), f"{ratio:.2f}" if ratio else "", figure.note)
    return "| " + " | ".join(cells) + " |"


class Report:
    """Prints figures as soon as they are available, as rows of a Markdown table or as JSON objects."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_quiet = RANK not in ("", "0")
        self._first: dict[str, Figure] = {}
        self._missing: set[str] = set()
        if not as_json and not RANK:
            print(TABLE_HEAD, flush=True)

    def add(
        self, what: str, who: str, values: float | Iterable[float], unit: str = "s", note: str = ""
    ) -> None:
        """Print a figure. Others are compared with the first contestant of the same ``what``."""
        several = (values,) if isinstance(values, (int, float)) else tuple(values)
        figure = Figure(what, who, several, unit, note)
        first = self._first.setdefault(what, figure)
        if self._is_quiet:
            return
        print(json.dumps(asdict(figure)) if self._as_json else table_row(figure, first), flush=True)

    def add_all(self, what: str, seconds: Mapping[str, Sequence[float]]) -> None:
        for who, values in seconds.items():
            self.add(what, who, values)

    def missing(self, who: str, why: str) -> None:
        """Report that a peer does not take part."""
        if self._is_quiet or who in self._missing:
            return
        self._missing.add(who)
        if self._as_json:
            print(json.dumps({"missing": who, "why": why}), flush=True)
        else:
            print(f"without {who}: {why}", file=sys.stderr)

    @contextmanager
    def optional(self, who: str) -> Iterator[None]:
        """Skip the rest of the block if it raises PeerMissing."""
        try:
            yield
        except PeerMissing as error:
            self.missing(who, str(error))


Part = Callable[[Report, argparse.Namespace], None]


def run_parts(
    doc: str | None, parts: Mapping[str, Part], *, runs: int = 5, options: Iterable[tuple[str, Any]] = ()
) -> None:
    """Run some parts of a benchmark, or all, as its command line says.

    Args:
        doc: the docstring of the script, for ``--help``.
        parts: the parts by name.
        runs: the number of measurements of each contestant; with ``--quick``, there is one.
        options: further options with their defaults; an option whose default is a list takes several values.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    if len(parts) > 1:
        parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts)}; all unless named")
    parser.add_argument("--runs", type=int, default=runs, help=f"of each contestant; default: {runs}")
    parser.add_argument("--quick", action="store_true", help="the smallest size, as a smoke test")
    parser.add_argument("--json", action="store_true", help="print each figure as a JSON object")
    for flag, default in options:
        if isinstance(default, list):
            parser.add_argument(flag, nargs="+", type=type(default[0]), default=default)
        elif default is None:
            parser.add_argument(flag)
        else:
            parser.add_argument(flag, type=type(default), default=default, help=f"default: {default}")
    given = parser.parse_args()
    chosen = getattr(given, "parts", None) or [*parts]
    for name in chosen:
        if name not in parts:
            parser.error(f"there is no part {name}: there are {', '.join(parts)}")
    if given.quick:
        given.runs = 1
        os.environ[SMOKE_TEST] = "1"
    report = Report(as_json=given.json)
    for name in chosen:
        parts[name](report, given)


def measure(function: Callable[[], object], runs: int) -> list[float]:
    """The wall-clock seconds of each of ``runs`` calls of ``function``."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return seconds


def cpu_seconds(command: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """The user and system CPU time of a child process and of the descendants that it waited for.

    Discards its output. Raises CalledProcessError if it fails.
    """
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return usage.ru_utime + usage.ru_stime


def in_turns(contestants: Mapping[Name, Callable[[], float]], runs: int) -> dict[Name, list[float]]:
    """The seconds that each contestant returns, in ``runs`` rounds in which each contestant has one turn.

    This way, other load on the machine affects all of them. An additional first round fills caches and is not counted.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in contestants}
    for turn in range(runs + 1):
        for name, run in contestants.items():
            took = run()
            if turn:
                seconds[name].append(took)
    return seconds


def resident(what: str) -> int:
    """The memory of this process in bytes: ``VmRSS`` now, or ``VmHWM``, the peak since 5 was last written to
    ``clear_refs`` (proc(5))."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith(f"{what}:")]
    return int(kilobytes) << 10
