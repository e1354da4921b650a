"""The scaling model of ``cloudtrain plan`` against published throughputs, each predicted without itself.

    python benchmarks/scaling.py [--write] [--json]

Everything but the jitter of the ranks is given: the size of the gradients, line rates, `EFFICIENCY`, a complete
overlap. The jitter is fitted to the other points of the same family, leaving out the point that is predicted.
``--write`` renews the table and the picture of docs/design/scaling-model.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from _common import REPOSITORY

from cloudtrain._display.markup import Html, element
from cloudtrain.plan.model import Links, Load, step_seconds, with_measured

DATA = Path(__file__).with_suffix(".json")
PAGE = REPOSITORY / "docs/design/scaling-model.md"
PICTURE = PAGE.with_name("scaling-model.svg")
TOLERANCE = 0.10
BEGIN, END = "<!-- scaling.py -->", "<!-- end -->"
JITTERS = [number / 1000 for number in range(101)]


@dataclass(frozen=True)
class Point:
    """One published throughput, and the inputs of its prediction."""

    name: str
    family: str
    source: str
    gpus: int
    shown: int
    """The number of GPUs to show, because ``gpus`` may count replicas of several GPUs."""
    load: Load
    """The load of one GPU; ``compute`` is the amount of work."""
    links: Links
    base: tuple[int, Load, float]
    """The GPUs, the load and the throughput of the first point of the series."""
    published: float
    """The throughput per GPU relative to the base."""

    @cache  # noqa: B019 - the points live as long as the program
    def predicted(self, jitter: float) -> float:
        """The throughput per GPU relative to the base, according to the model."""
        gpus, load, rate = self.base
        seconds = load.compute / rate
        each = with_measured(replace(load, jitter=jitter), seconds, gpus, self.links).compute / load.compute
        own = replace(self.load, compute=self.load.compute * each, jitter=jitter)
        return self.load.compute / step_seconds(own, self.gpus, self.links) / rate


@dataclass(frozen=True)
class Result:
    point: Point
    jitter: float
    """The jitter that was fitted to the other points of the family."""
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.point.published - 1

    @property
    def linear_error(self) -> float:
        """The error of the assumption that GPUs never wait."""
        return 1 / self.point.published - 1


def points() -> list[Point]:
    return [point for series in json.loads(DATA.read_text())["series"] for point in _points(series)]


def _points(series: dict[str, Any]) -> list[Point]:
    links = Links(series["gpus_per_host"], series["host_gbit"] * 1e9 / 8, series["gpu_gb"] * 1e9)
    size = series["parameters"] * series["bytes"]
    loads = [
        Load(work, size, series.get("sharded", False), passes, series.get("overlap", 1))
        for _, work, passes, _ in series["points"]
    ]
    gpus, _, _, rate = series["points"][0]
    return [
        Point(
            series["name"], series["family"], series["source"],
            point[0], point[0] * series.get("replica", 1), load, links, (gpus, loads[0], rate), point[3] / rate,
        )
        for point, load in zip(series["points"][1:], loads[1:], strict=True)
    ]  # fmt: skip


def fitted(known: Sequence[Point]) -> float:
    """The jitter with the least sum of squared errors of the logarithms."""
    return min(
        JITTERS, key=lambda jitter: sum(math.log(p.predicted(jitter) / p.published) ** 2 for p in known)
    )


def leave_one_out() -> list[Result]:
    """Each point, predicted with the jitter of the other points of its family."""
    found = points()
    results = []
    for point in found:
        jitter = fitted([other for other in found if other.family == point.family and other is not point])
        results.append(Result(point, jitter, point.predicted(jitter)))
    return results


def table(results: Sequence[Result]) -> str:
    lines = [
        "| training | GPUs | published | predicted | error | error of linear scaling |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for result in results:
        point = result.point
        error = f"{result.error:+.1%}"
        lines.append(
            f"| {point.name} | {point.shown:,} | {point.published:.1%} | {result.predicted:.1%} | "
            f"{f'**{error}**' if abs(result.error) > TOLERANCE else error} | {result.linear_error:+.1%} |"
        )
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> str:
    within = sum(abs(result.error) <= TOLERANCE for result in results)
    errors = [abs(result.error) for result in results]
    linear = [abs(result.linear_error) for result in results]
    return (
        f"Within 10 %: {within} of {len(results)} points. The median error is {statistics.median(errors):.1%}, the "
        f"largest {max(errors):.1%}; with linear scaling {statistics.median(linear):.1%} and {max(linear):.1%}."
    )


SIZE, MARGIN, LOW, HIGH = 420, 50, 0.60, 1.06


def picture(results: Sequence[Result]) -> Html:
    """Draw the published against the predicted efficiency, with the tolerance as a band."""

    def place(value: float) -> float:
        return round(MARGIN + (value - LOW) / (HIGH - LOW) * (SIZE - 2 * MARGIN), 1)

    def at(x: float, y: float) -> str:
        return f"{place(x):g},{SIZE - place(y):g}"

    band = [(LOW, LOW * 0.9), (HIGH, HIGH * 0.9), (HIGH, HIGH * 1.1), (LOW, LOW * 1.1)]
    clipped = [(x, min(max(y, LOW), HIGH)) for x, y in band]
    parts = [
        element("title", "Predicted against published efficiency, in percent of the first point of each series"),
        element("rect", width=SIZE, height=SIZE, fill="#ffffff"),
        element("polygon", points=Html(" ".join(at(*corner) for corner in clipped)), fill="#e5e9f0"),
        element("polyline", points=Html(f"{at(LOW, LOW)} {at(HIGH, HIGH)}"), stroke="#888888", fill="none"),
    ]  # fmt: skip
    text = {"font_family": "sans-serif", "font_size": 12, "fill": "#333333", "text_anchor": "middle"}
    for percent in range(60, 101, 10):
        x, y = at(percent / 100, LOW).split(",")
        parts.append(element("text", f"{percent}", x=x, y=f"{float(y) + 18:g}", **text))
        x, y = at(LOW, percent / 100).split(",")
        parts.append(element("text", f"{percent}", x=f"{float(x) - 18:g}", y=y, **text))
    parts.append(element("text", "published, %", x=SIZE // 2, y=SIZE - 8, **text))
    parts.append(element("text", "predicted, %", x=45, y=22, **text))
    colours = {"horovod": "#bf616a", "one host": "#b48ead", "sharded": "#5e81ac"}
    for number, (family, colour) in enumerate(colours.items()):
        for result in results:
            if result.point.family == family:
                x, y = at(result.point.published, result.predicted).split(",")
                parts.append(element("circle", cx=x, cy=y, r=4, fill=colour, fill_opacity="0.7"))
        parts.append(element("circle", cx=130 + 90 * number, cy=18, r=4, fill=colour))
        parts.append(element("text", family, x=172 + 90 * number, y=22, **text))
    label = "Predicted against published efficiency"
    return element(
        "svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {SIZE} {SIZE}", width=SIZE, height=SIZE,
        role="img", aria_label=label,
    )  # fmt: skip


def page(text: str, results: Sequence[Result]) -> str:
    """The page with an updated table."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{summary(results)}\n\n{table(results)}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="renew the page and its picture")
    parser.add_argument("--json", action="store_true", help="print the predictions as JSON")
    options = parser.parse_args()
    results = leave_one_out()
    if options.write:
        PAGE.write_text(page(PAGE.read_text(), results))
        PICTURE.write_text(f"{picture(results)}\n")
    if options.json:
        rows = [
            {"name": r.point.name, "gpus": r.point.shown, "published": r.point.published, "predicted": r.predicted,
             "jitter": r.jitter, "source": r.point.source}
            for r in results
        ]  # fmt: skip
        print(json.dumps(rows, indent=2))
    else:
        print(table(results), summary(results), sep="\n\n")


if __name__ == "__main__":
    main()
