"""A training whose state is a hash chain: each step hashes the state of the step before.

A restored state is right only if every step before it happened, in order and on the right state. A journal, which no
fault touches, records what rank 0 began to save, knows to be durable, and restored. One system call appends each line.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from weather_figures import Figures

STEPS = 100
STEP_SECONDS = 0.1
EVERY = 4
"""Steps from one save to the next."""
WAITS = 3
"""After every so many saves the training waits until they are durable."""

SCRIPT = f"""
import argparse
import hashlib
import os
import time
from pathlib import Path

from cloudtrain import environment

parser = argparse.ArgumentParser()
parser.add_argument("--journal")
journal_path = parser.parse_args().journal
journal = os.open(journal_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
finished = Path(journal_path + ".finished")


def note(*values):
    os.write(journal, (" ".join(map(str, values)) + "\\n").encode())


def rank_0():
    from cloudtrain.checkpoint import Checkpointer
    from cloudtrain.errors import CloudtrainError

    with Checkpointer(every={EVERY}, keep=3) as checkpointer:
        found = checkpointer.restore()
        step, value = (found.step, found.state["value"]) if found else (0, "")
        note("restored", step, value)
        saves = 0
        while step < {STEPS}:
            time.sleep({STEP_SECONDS})
            step += 1
            value = hashlib.sha256(f"{{value}} {{step}}".encode()).hexdigest()
            print("step", step, flush=True)
            note("begun", step)
            if checkpointer.maybe_save(step, {{"value": value}}):
                saves += 1
                if saves % {WAITS} == 0:
                    try:
                        checkpointer.wait()
                        note("durable", step)
                    except CloudtrainError as error:
                        note("failed", step, error)
            environment.exit_if_preempted()
    Path(os.environ["SM_MODEL_DIR"], "value").write_text(value)
    finished.touch()


note("pid", environment.rank(), os.getpid())
if environment.rank() == 0:
    rank_0()
else:
    while not finished.exists():
        time.sleep({STEP_SECONDS})
        environment.exit_if_preempted()
"""


def value_at(step: int) -> str:
    """The state of the training at ``step``."""
    value = ""
    for number in range(1, step + 1):
        value = hashlib.sha256(f"{value} {number}".encode()).hexdigest()
    return value


@dataclass
class Journal:
    """The content of a journal so far."""

    path: Path
    pids: dict[int, int] = field(default_factory=dict)
    """The last process of each rank."""
    durable: int = 0
    restores: list[tuple[int, int, str]] = field(default_factory=list)
    """For each start of rank 0: the step that was durable before, the restored step, and its state."""
    lost_steps: int = 0
    """Steps that were trained more than once."""
    failed_saves: int = 0

    @classmethod
    def read(cls, path: Path) -> Journal:
        journal = cls(path)
        times: dict[int, int] = defaultdict(int)
        for line in path.read_text().splitlines() if path.exists() else ():
            event, number, *rest = line.split(" ", 2)
            if event == "pid":
                journal.pids[int(number)] = int(rest[0])
            elif event == "begun":
                times[int(number)] += 1
            elif event == "durable":
                journal.durable = max(journal.durable, int(number))
            elif event == "restored":
                journal.restores.append((journal.durable, int(number), rest[0] if rest else ""))
            elif event == "failed":
                journal.failed_saves += 1
        journal.lost_steps = sum(count - 1 for count in times.values())
        return journal

    def judge(self, where: str, figures: Figures) -> None:
        """Add what this journal shows to the totals."""
        figures.repeated_steps += self.lost_steps
        figures.failed_saves += self.failed_saves
        for durable, step, value in self.restores:
            if step < durable:
                figures.lost.append(f"{where}: {durable} was durable, {step} was restored")
            if value != value_at(step):
                figures.torn.append(f"{where}: the state of step {step}")
