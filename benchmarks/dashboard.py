"""How long a page of the dashboard takes, over HTTP from a server that has just started.

    python benchmarks/dashboard.py [lists] [points] [--runs 5] [--quick] [--json]

- ``lists``: the list of 1, 100 and 10,000 jobs that have ended: the first page with what is known without a platform,
  and the rows with states that replace it, then and later.
- ``points``: the page of a job with a million values of a metric, and the data of its plot: first its course, which
  the supervisor has summarised, then all values. And the same for a job without a summary.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from _common import OURS, TEST_FOLDERS, Report, measure, run_parts
from growth import make_job, make_jobs

sys.path += TEST_FOLDERS

from dashboard_client import Client, dashboard

from cloudtrain.platforms.supervised.job_summary import read_summary
from cloudtrain.platforms.supervised.root import JobFiles, LocalRoot


def get(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status == 200, answer


def lists(report: Report, given: argparse.Namespace) -> None:
    for count in (1, 100) if given.quick else (1, 100, 10_000):
        with tempfile.TemporaryDirectory() as name:
            os.environ["CLOUDTRAIN_HOME"] = name
            make_jobs(Path(name), count)
            with dashboard(Path(name)) as client:
                client.enter()
                for what, path in (
                    ("first page", ""),
                    ("states", "rows"),
                    ("name filter", "rows?name=job-1"),
                    ("condition", "rows?where=lr+%3C+1&sort=lr"),
                ):
                    for which, runs in (("first", 1), ("next", given.runs)):
                        title = f"dashboard, {count:,} jobs: {what}, {which}"
                        report.add(title, OURS, measure(partial(get, client, path), runs))


def points(report: Report, given: argparse.Namespace) -> None:
    values = 10_000 if given.quick else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        os.environ["CLOUDTRAIN_HOME"] = name
        jobs = Path(name) / "jobs" / "local"
        make_jobs(Path(name), 1)
        for job in ("large", "without-summary"):
            make_job(jobs / job, 0)
            with open(jobs / job / "events.jsonl", "w") as file:
                event = {"source": "algo-1", "event": "metric", "name": "loss"}
                for number in range(values):  # in the order in which a runtime writes the fields
                    begin = {"time": 1_700_000_000.5 + number, **event, "value": 1 / (1 + number)}
                    file.write(json.dumps({**begin, "rank": 0, "step": number}) + "\n")
        read_summary(JobFiles(LocalRoot("local", jobs), "large"))  # as a supervisor does while the job runs
        for job in ("large", "without-summary"):
            title = f"dashboard, {values:,} values{' and no summary' * (job != 'large')}"
            with dashboard(Path(name)) as client:
                client.enter()
                for what, path in (("page", f"jobs/local/{job}"), ("plot", f"jobs/local/{job}/points")):
                    for which, runs in (("first", 1), ("next", given.runs)):
                        report.add(
                            f"{title}: {what}, {which}", OURS, measure(partial(get, client, path), runs)
                        )
                report.add(f"{title}: all values", OURS, measure(partial(wait_for_all, client, job), 1))


def wait_for_all(client: Client, job: str) -> None:
    """Poll until the plot has all values, as the page does."""
    while not json.loads(client.get(f"jobs/local/{job}/points").body)["is_whole"]:
        time.sleep(0.1)


if __name__ == "__main__":
    run_parts(__doc__, {"lists": lists, "points": points})
