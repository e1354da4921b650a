"""The timeline of a job: finds its trace files, and shows the times of its steps as tables, JSON or a picture."""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from cloudtrain._system.safe_open import Beneath
from cloudtrain.cli._output import print_table
from cloudtrain.errors import CloudtrainError, NotFound, StorageError
from cloudtrain.observe.timeline import RankStep, Step, Trace

if TYPE_CHECKING:
    from cloudtrain.job import Job


FOLDER = "timeline"
"""The folder of the traces below a job's ``output/data/``."""
_PATTERNS = ("*.json", "*.json.gz")


@contextmanager
def timeline_files(what: Sequence[str], platform: str | None) -> Iterator[list[Path]]:
    """The trace files named by ``what``: files, folders, or one job. Downloaded files exist until the context ends.

    Raises:
        NotFound: a file does not exist, or the job recorded no timeline (yet).
        JobNotFound: neither a file nor a job has this name.
        StorageError: the job's files cannot be downloaded.
    """
    with TemporaryDirectory(prefix="cloudtrain-timeline-") as folder:
        may_be_job = len(what) == 1 and not {".", "/"} & set(what[0])
        if may_be_job and not Path(what[0]).exists():
            from cloudtrain.job import Job

            found = job_files(Job.attach(what[0], platform), Path(folder))
        else:
            found = [path for name in what for path in _named(Path(name))]
        yield found


def _named(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = _traces(path)
    if not found:
        raise NotFound(
            f"there is no trace at {path}", hint="Give trace files, folders with trace files, or one job."
        )
    return found


def job_files(job: Job, folder: Path) -> list[Path]:
    """The trace files of a job, in ``folder``: copied from its folder on this machine if it has them, else downloaded.

    Raises:
        NotFound, StorageError: as `timeline_files`.
    """
    description = job.describe()
    hosts = Path(description.place or os.devnull) / "hosts"
    found = [path for host in sorted(hosts.glob("*")) for path in _copied(host, folder / "hosts" / host.name)]
    if not found and description.output_data:
        for path in job.download(folder, model=False):
            found += _traces(_unpacked(path) / FOLDER)
    if not found:
        raise NotFound(
            f"job {job.name} ({description.status}) has no timeline",
            hint="Submit the job with timeline=True (--set timeline=true). Ranks record from init() on.",
        )
    return found


def _copied(host: Path, folder: Path) -> list[Path]:
    """Copies of the traces of a host, read without following links: the job can replace files meanwhile."""
    with contextlib.suppress(OSError), Beneath(host) as base, base.inside(f"output/data/{FOLDER}") as traces:
        for found in traces.contents():
            if found.is_file and any(fnmatch(found.key, pattern) for pattern in _PATTERNS):
                with traces.open(found.key) as source:
                    folder.mkdir(parents=True, exist_ok=True)
                    with open(folder / found.key, "wb") as target:
                        shutil.copyfileobj(source, target)
    return _traces(folder)


def _unpacked(path: Path) -> Path:
    """The folder of a download. Of an archive, the timelines are unpacked first."""
    if path.is_dir():
        return path
    target = path.with_suffix(".unpacked")
    try:
        with tarfile.open(path) as archive:
            # not extractall(filter="data"): Python 3.10 before 3.10.12 and 3.11 before 3.11.4 lack the filter
            for member in archive:
                parts = PurePosixPath(member.name).parts
                source = archive.extractfile(member) if parts[:1] == (FOLDER,) and ".." not in parts else None
                if source is not None and member.isreg():
                    file = target.joinpath(*parts)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(source.read())
    except (tarfile.TarError, EOFError) as error:
        raise StorageError(f"{path.name} of the job is damaged: {error}") from error
    return target


def _traces(folder: Path) -> list[Path]:
    return sorted(path for pattern in _PATTERNS for path in folder.glob(pattern))


PARTS: dict[str, Callable[[RankStep], float]] = {
    "total": lambda step: step.total,
    "compute": lambda step: step.compute,
    "communication": lambda step: step.communication,
    "exposed": lambda step: step.exposed,
}
"""The parts of a step. ``total`` is the sum of ``compute`` and ``exposed``."""


def describe(traces: Sequence[Trace], steps: Sequence[Step]) -> dict[str, Any]:
    """The content of both tables as JSON values. Times are in seconds."""
    return {
        "ranks": [
            {
                "rank": trace.rank,
                "host": trace.host,
                "slowest_in": _slowest(steps)[trace.rank],
                "clock_offset": trace.offsets[-1].offset_ns / 1e9 if trace.offsets else None,
                "clock_uncertainty": trace.offsets[-1].round_trip_ns / 2e9 if trace.offsets else None,
                **_summary(_own(trace.rank, steps)),
            }
            for trace in _timelines(traces)
        ],
        "steps": [
            {
                "step": step.number,
                "slowest": step.slowest.rank,
                "behind": step.behind,
                "ranks": [
                    {"rank": own.rank, "began": own.began, **{name: get(own) for name, get in PARTS.items()}}
                    for own in step.ranks
                ],
            }
            for step in steps
        ],
    }


def show_ranks(traces: Sequence[Trace], steps: Sequence[Step]) -> None:
    """Print one row per rank: the median and the maximum of each part of its steps."""
    if not steps:
        click.echo(
            "No complete steps. The step() of a DistributedOptimizer marks the end of a step.", err=True
        )
        return
    headings = [f"{name.upper()} {what}" for name in PARTS for what in ("P50", "WORST")]
    rows = []
    for trace in _timelines(traces):
        own = _own(trace.rank, steps)
        if own:
            numbers = [_ms(value) for part in _summary(own)["parts"].values() for value in part.values()]
            rows.append(
                [f"{trace.rank}", trace.host, *numbers, f"{_slowest(steps)[trace.rank]}/{len(steps)}"]
            )
    print_table(["RANK", "HOST", *headings, "SLOWEST IN"], rows, right=["RANK", *headings, "SLOWEST IN"])
    click.echo(
        "In milliseconds. TOTAL = COMPUTE + EXPOSED (communication that does not overlap with compute).",
        err=True,
    )


def show_steps(steps: Sequence[Step]) -> None:
    """Print one row per step: its parts on the slowest rank, which the other ranks wait for."""
    rows = [
        [
            f"{step.number}",
            *(_ms(get(step.slowest)) for get in PARTS.values()),
            f"{step.slowest.rank}",
            _ms(step.behind),
        ]
        for step in steps
    ]
    names = ["STEP", *map(str.upper, PARTS), "SLOWEST RANK", "BEHIND"]
    print_table(names, rows, right=names)
    click.echo(
        "In milliseconds, on the slowest rank. BEHIND: its compute minus that of the median rank.", err=True
    )


def _timelines(traces: Sequence[Trace]) -> Iterable[Trace]:
    """The last timeline of each rank."""
    return {trace.rank: trace for trace in traces if not trace.is_profile}.values()


def _own(rank: int, steps: Sequence[Step]) -> list[RankStep]:
    return [own for step in steps for own in step.ranks if own.rank == rank]


def _slowest(steps: Sequence[Step]) -> Counter[int]:
    return Counter(step.slowest.rank for step in steps)


def _summary(own: Sequence[RankStep]) -> dict[str, Any]:
    values = {name: [get(step) for step in own] for name, get in PARTS.items()}
    return {
        "steps": len(own),
        "parts": {name: {"p50": median(them), "worst": max(them)} for name, them in values.items() if them},
    }


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


_COLOURS = {"compute": "#4c9f70", "wait": "#d1495b", "memcpy": "#edae49", "operation": "#30638e"}
_HEIGHT = 0.4
_ABOVE: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 4, "frameon": False}
"""The position of legends."""


def draw(traces: Sequence[Trace], steps: Sequence[Step], path: Path) -> None:
    """Write the plot to ``path``, as PNG.

    Raises:
        CloudtrainError: matplotlib is missing, or there are no complete steps.
        StorageError: ``path`` cannot be written.
    """
    if not steps:
        raise CloudtrainError(
            "the timeline has no complete steps to draw",
            hint="The step() of a DistributedOptimizer marks the end of a step.",
        )
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CloudtrainError("--png needs matplotlib", hint="pip install matplotlib") from error
    figure = Figure(figsize=(12, 7), layout="constrained")
    above, below = figure.subplots(2, 1)
    median = sorted(steps, key=lambda step: step.slowest.total)[len(steps) // 2]
    _draw_step(above, traces, median)
    _draw_steps(below, steps)
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


def _draw_step(axes: Any, traces: Sequence[Trace], step: Step) -> None:
    """Draw two bars per rank: its training thread, and the collectives that run at the same time."""
    start = min(own.began for own in step.ranks)
    for place, own in enumerate(step.ranks):
        ended = own.began + own.total
        axes.broken_barh(
            [(1000 * (own.began - start), 1000 * own.total)], (place, _HEIGHT), color=_COLOURS["compute"]
        )
        timelines = [trace for trace in traces if trace.rank == own.rank and not trace.is_profile]
        for kind, bottom in (("operation", place + _HEIGHT), ("memcpy", place), ("wait", place)):
            spans = [
                (1000 * (max(began, own.began) - start), 1000 * (min(end, ended) - max(began, own.began)))
                for trace in timelines
                for began, end in _spans(trace, kind)
                if end > own.began and began < ended
            ]
            axes.broken_barh(spans, (bottom, _HEIGHT), color=_COLOURS[kind])
    axes.set_yticks(
        [place + _HEIGHT for place in range(len(step.ranks))], [f"rank {own.rank}" for own in step.ranks]
    )
    axes.set_xlabel(f"ms of step {step.number}")
    names = {"compute": "compute", "wait": "wait", "memcpy": "copy", "operation": "collective"}
    handles = [axes.plot([], [], color=_COLOURS[kind], linewidth=6)[0] for kind in names]
    axes.legend(handles, list(names.values()), **_ABOVE)


def _draw_steps(axes: Any, steps: Sequence[Step]) -> None:
    numbers = [step.number for step in steps]
    parts = [
        [1000 * step.slowest.compute for step in steps],
        [1000 * step.slowest.exposed for step in steps],
    ]
    colours = [_COLOURS["compute"], _COLOURS["wait"]]
    axes.stackplot(numbers, *parts, colors=colours, labels=["compute", "exposed communication"])
    axes.set_xlabel("step")
    axes.set_ylabel("ms on the slowest rank")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(**_ABOVE)


def _spans(trace: Trace, category: str) -> list[tuple[float, float]]:
    """The start and end of each event in seconds since the epoch."""
    base = trace.start_ns / 1e9
    return [
        (base + event["ts"] / 1e6, base + (event["ts"] + event["dur"]) / 1e6)
        for event in trace.events
        if event.get("cat") == category and event.get("ph") == "X"
    ]
