"""A sweep that has not been run: its events, as a controller writes them."""

from __future__ import annotations

import json
import time
from typing import Any

from cloudtrain.index import database as index, insert
from cloudtrain.sweep.journal import Journal, sweeps_home
from cloudtrain.sweep.plan import make_plan

SPACE = {"lr": "log:1e-5..1e-1", "depth": [2, 4, 8], "kind": ["sgd", "adam"]}


def large_sweep(
    name: str,
    trials: int,
    *,
    finished: bool = True,
    space: dict[str, Any] | None = None,
    indexed: bool = False,
) -> None:
    """Every seventh trial has failed; the loss depends on ``lr`` alone, and each costs 0.5 EUR."""
    space = space or SPACE
    folder = sweeps_home() / name
    folder.mkdir(parents=True, mode=0o700)
    journal, now = Journal(folder), time.time() - trials
    journal.append = _appended(journal)  # type: ignore[method-assign]
    plan = make_plan(name, space, "loss", goal="minimize", trials=max(trials, 1), sampler="random")
    journal.append("created", plan={**plan.to_dict(), "platform": "local"}, time=now)
    points = [{key: one.at((number * step % 997) / 997) for step, (key, one) in enumerate(plan.space.items(), 389)}
              for number in range(trials)]  # fmt: skip
    for number, parameters in enumerate(points):
        at = {"trial": number, "time": now + number}
        journal.append("asked", parameters=parameters, **at)
        journal.append("submitted", **at)
        failed = number % 7 == 6
        value = None if failed else 10 * float(next(iter(parameters.values()), 0)) + 0.5
        status, why = ("Failed", "<b>boom</b>\x1b[31m") if failed else ("Completed", "")
        journal.append("ended", status=status, value=value, why=why, failure_class=None, values={}, attributes={},
                       cost=0.5, currency="EUR", **at)  # fmt: skip
    if indexed:
        rows = [{"name": plan.trial_name(number), "platform": "local", "submitted_at": now + number}
                for number in range(trials)]  # fmt: skip
        index.write(lambda database: [insert(database, row) for row in rows], "")
    if finished:
        journal.append("finished", why="completed", time=now + trials)


def _appended(journal: Journal) -> Any:
    def append(event: str, **values: Any) -> None:
        with open(journal.folder / "events.jsonl", "a") as file:
            file.write(json.dumps({"event": event, **values}) + "\n")

    return append
