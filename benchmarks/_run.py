"""Runs the benchmarks of `rows.py`, and prints one table: figures, ratio, goal, met or missed, load.

    benchmarks/run                   # all; writes RESULTS.md
    benchmarks/run --quick           # those of 5 minutes, and compares with the last run on this machine
    benchmarks/run --only PATTERN    # those whose row or command matches, also in RESULTS.md
    benchmarks/run --list

A peer that cannot be installed is n/a, and so are the rows of a benchmark that fails: why is printed below the table.
The figures of RESULTS.md are in `results.json`. The last figures on this machine are in ~/.cache/cloudtrain-bench/runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from _common import PEERS, REPOSITORY, TABLE_HEAD, Figure, table_row
from rows import BENCHMARKS, Benchmark, Row

from cloudtrain._system.owned import FolderIsOpen, own_folder

FOLDER = Path(__file__).parent
RESULTS, STORED = FOLDER / "RESULTS.md", FOLDER / "results.json"
BY_HAND = "<!-- What follows is written by hand. -->"
QUICK_SECONDS = 300.0
HOUR = 3600.0
COLUMNS = ("row", "ours", "last", "peer", "ratio", "wanted", "outcome", "load")


@dataclass
class Result:
    """The figures that one benchmark printed."""

    figures: list[Figure] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """The reason for each missing peer."""
    problem: str = ""
    """The reason why the benchmark failed."""
    load: str = ""
    """The load average of one minute, before and after the benchmark."""
    commit: str = ""
    date: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Result:
        figures = [Figure(**{**each, "values": tuple(each["values"])}) for each in stored["figures"]]
        return cls(**{**stored, "figures": figures})

    def find(self, what: str, who: str) -> Figure | None:
        found = (each for each in self.figures if each.what == what and each.who.startswith(who))
        return next(found, None)


def run(benchmark: Benchmark, options: str, seconds: float) -> Result:
    """Run one benchmark for at most ``seconds``. Does not raise if it fails."""
    script, *arguments = shlex.split(benchmark.command)
    command = [sys.executable, str(FOLDER / script), *arguments, *shlex.split(options), "--json"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = Result(commit=_commit(), date=datetime.now(timezone.utc).strftime("%Y-%m-%d"))
    before, began = os.getloadavg()[0], time.monotonic()
    process = subprocess.Popen(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=seconds)
        lines = errors.strip().splitlines() or [f"exit status {process.returncode}"]
        result.problem = lines[-1] if process.returncode else ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, errors = process.communicate()
        result.problem = f"stopped after {seconds:.0f} s"
    if result.problem:
        print(errors, file=sys.stderr)
    result.seconds = time.monotonic() - began
    result.load = f"{before:.1f} to {os.getloadavg()[0]:.1f}"
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        record = json.loads(line)
        if "missing" in record:
            result.missing[record["missing"]] = record["why"]
        else:
            result.figures.append(Figure(**{**record, "values": tuple(record["values"])}))
    return result


def line(row: Row, result: Result, last: Result | None) -> tuple[dict[str, str], str]:
    """The cells of a row, and the reason if some of them are n/a."""
    ours, peer = result.find(row.what, row.ours), None
    if ours is None:
        why = result.problem or f"printed no figure of {row.ours} for {row.what!r}"
        return {
            **dict.fromkeys(COLUMNS, "n/a"),
            "row": row.name,
            "wanted": row.wanted,
            "load": result.load,
        }, why
    why = ""
    if row.peer:
        peer = result.find(row.what, row.peer)
        if peer is None:
            reasons = [
                text for who, text in result.missing.items() if row.peer in who or who.startswith(row.peer)
            ]
            why = f"{row.peer}: {reasons[0] if reasons else result.problem or 'printed no figure'}"
    ratio = peer.ratio(ours) if peer else None
    before = last.find(row.what, row.ours) if last else None
    change = f" ({ours.median / before.median - 1:+.0%})" if before and before.median else ""
    met = row.is_met(ours, peer)
    return {
        "row": row.name,
        "ours": ours.shown(ours.median),
        "last": f"{before.shown(before.median)}{change}" if before else "",
        "peer": f"{peer.who}: {peer.shown(peer.median)}" if peer else "n/a" if row.peer else "",
        "ratio": f"{ratio:.2f}" if ratio else "",
        "wanted": _wanted(row, ours),
        "outcome": {True: "met", False: "missed", None: "n/a" if row.wanted else ""}[met],
        "load": result.load,
    }, why


def _wanted(row: Row, ours: Figure) -> str:
    limit = "" if row.limit is None else Figure("", "", (row.limit,), ours.unit).shown(row.limit)
    return ", ".join(part for part in (limit, f"{row.times:.3g} x" if row.times is not None else "") if part)


def table(
    results: dict[str, Result], last: dict[str, Result], benchmarks: tuple[Benchmark, ...] | list[Benchmark]
) -> tuple[list[dict[str, str]], list[str]]:
    """The rows of all benchmarks that have a result, and the reasons for cells that are n/a."""
    lines, reasons = [], []
    for benchmark in benchmarks:
        result = results.get(benchmark.command)
        if result is None:
            continue
        for row in benchmark.rows:
            cells, why = line(row, result, last.get(benchmark.command))
            lines.append(cells)
            if why:
                reasons.append(f"{row.name}: {why}")
        if not benchmark.rows and result.problem:
            reasons.append(f"{benchmark.command}: {result.problem}")
    return lines, reasons


def show(lines: list[dict[str, str]], reasons: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(*COLUMNS)
    style = {"met": "green", "missed": "red"}
    for cells in lines:
        shown.add_row(*(cells[column] for column in COLUMNS), style=style.get(cells["outcome"], ""))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(shown)
    for reason in reasons:
        console.print(f"n/a: {reason}", markup=False, highlight=False)


def machine() -> str:
    """The processors, the memory, the system and the Python version of this machine."""
    models = [
        text.partition(":")[2].strip()
        for text in Path("/proc/cpuinfo").read_text().splitlines()
        if text.startswith("model name")
    ]
    gigabytes = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} cores ({model}), {gigabytes} GB, {platform.system()}, Python {platform.python_version()}"


def last_run(quick: bool) -> Path:
    """The file of the last run on this machine. Raises FolderIsOpen if another user could have written it."""
    folder = own_folder(PEERS / "runs", create=True)
    key = hashlib.sha256(f"{machine()} {'quick' if quick else 'whole'}".encode()).hexdigest()[:12]
    return Path(folder, f"{key}.json")


def load(path: Path) -> dict[str, Result]:
    if not path.exists():
        return {}
    return {command: Result.of(stored) for command, stored in json.loads(path.read_text()).items()}


def store(path: Path, results: dict[str, Result]) -> None:
    path.write_text(json.dumps({name: asdict(one) for name, one in results.items()}, indent=1) + "\n")


def _commit() -> str:
    describe = ["git", "-C", str(REPOSITORY), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty"]
    return subprocess.run(describe, capture_output=True, text=True).stdout.strip() or "unknown"


def results_page(results: dict[str, Result], before: str) -> str:
    """The text of RESULTS.md, with the handwritten part of the previous page."""
    lines, reasons = table(results, {}, BENCHMARKS)
    columns = [column for column in COLUMNS if column != "last"]
    text = [
        "# Results",
        "",
        f"Made by `benchmarks/run` on one machine with {machine()}.",
        "[README.md](README.md) describes the method and the peers. A ratio is how many times better cloudtrain is:",
        "only ratios hold on another machine. Each benchmark's commit, date and load are in its section.",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + " --- |" * len(columns),
        *("| " + " | ".join(cells[column] for column in columns) + " |" for cells in lines),
    ]
    if reasons:
        text += ["", "Not available:", "", *(f"- {reason}" for reason in reasons)]
    for benchmark in BENCHMARKS:
        result = results.get(benchmark.command)
        if result is None or not result.figures:
            continue
        text += ["", f"## {benchmark.title}", ""]
        text += [
            f"`python benchmarks/{benchmark.command}`, {result.date}, commit {result.commit}, load {result.load}."
        ]
        text += ["", TABLE_HEAD]
        for figure in result.figures:
            first = next(each for each in result.figures if each.what == figure.what)
            text.append(table_row(figure, first))
    by_hand = before.partition(BY_HAND)[2]
    return "\n".join([*text, "", BY_HAND]) + by_hand if by_hand else "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="the benchmarks of 5 minutes, with fewer runs")
    parser.add_argument("--only", metavar="PATTERN", help="benchmarks with a row or command that matches")
    parser.add_argument(
        "--list", action="store_true", help="print the rows and the commands, and run nothing"
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    given = parser.parse_args()
    chosen = [
        each
        for each in BENCHMARKS
        if (not given.quick or each.quick is not None) and (not given.only or each.matches(given.only))
    ]
    if not chosen:
        parser.error(f"no row and no command matches {given.only}")
    if given.list:
        for each in chosen:
            print(f"python benchmarks/{each.command}  # {each.minutes:g} min")
            for row in each.rows:
                print(f"    {row.name}: {row.wanted or 'no limit'}")
        return
    try:
        path = last_run(given.quick)
    except (FolderIsOpen, OSError) as error:
        sys.exit(f"the last run is not read, and this one would not be stored: {error}")
    last = load(path)
    results: dict[str, Result] = {}
    began = time.monotonic()
    for each in chosen:
        left = QUICK_SECONDS - (time.monotonic() - began) if given.quick else HOUR
        if left < 5:
            results[each.command] = Result(problem="the 5 minutes were over")
            continue
        print(f"{each.command} ...", file=sys.stderr)
        results[each.command] = run(each, each.quick or "" if given.quick else "", left)
        if not given.quick:
            store(STORED, load(STORED) | {each.command: results[each.command]})
    lines, reasons = table(results, last, chosen)
    if given.json:
        print(json.dumps({"rows": lines, "n/a": reasons}, indent=1))
    else:
        show(lines, reasons)
    store(path, last | {name: one for name, one in results.items() if not one.problem})
    if not given.quick:
        RESULTS.write_text(results_page(load(STORED), RESULTS.read_text() if RESULTS.exists() else ""))


if __name__ == "__main__":
    main()
