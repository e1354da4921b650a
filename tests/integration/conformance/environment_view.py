"""The environment of a rank as text that is the same in each run and on each machine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VIEWS = Path(__file__).parents[2] / "data" / "script_views"

OURS = re.compile(
    r"(ACCELERATE|CLOUDTRAIN|COMET|DMLC|GLOO|GROUP|HOROVOD|JAX|KERAS|LOCAL|MASTER|MLFLOW|NCCL|NODE|OMP|RDZV|SAGEMAKER|SM"
    r"|TF|TORCH|TORCHELASTIC|TRAINING|WANDB|WORLD)_.*|CURRENT_HOST|RANK|PYTHONPATH"
)
"""Variables that cloudtrain sets; the others are those of the machine, of a scheduler, an MPI or a cloud."""
OF_THE_MACHINE = re.compile(
    "CLOUDTRAIN_(TEST|REQUIRE|WRITE|SLURM)_.*|CLOUDTRAIN_.*_PYTHON|SM_NUM_CPUS|OMP_NUM_THREADS"
)
"""Those of them whose values depend on the machine, or on what ran before."""
ELSEWHERE = re.compile("SM_HP_.*|SM_HPS|SM_USER_ARGS|SM_TRAINING_ENV")
"""Variables that other tests read."""
PROCESS = "CLOUDTRAIN_DIE_WITH_PARENT"
"""May hold the ID of a process, which is small in a new namespace."""
NAMES = (
    (re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b"), "ADDRESS"),
    (re.compile(r"conforms-\w+(-\d+)?"), "conforms-ID"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|\b[\w-]{40,}"), "ID"),
    (re.compile(r"(?<![\w}])(/[\w.+-]+)+"), "PATH"),
    (re.compile(r"\b\d{2,}(\.\d+)?\b"), "NUMBER"),
)


def environment_view(seen: Mapping[str, Any], hosts: Sequence[str]) -> str:
    """A line for each variable that the job has given to a rank.

    Args:
        seen: the observations of the rank.
        hosts: the names of the job's hosts.
    """
    lines = []
    for name, value in sorted(seen["environ"].items()):
        left_out = OF_THE_MACHINE.fullmatch(name) or ELSEWHERE.fullmatch(name)
        if left_out or not OURS.fullmatch(name) or os.environ.get(name) == value:
            continue
        is_process = name == PROCESS and value.isdigit()
        text = "NUMBER" if is_process else value.replace(seen["base"], "BASE")
        for number, host in enumerate(hosts):
            text = text.replace(host, f"HOST{number}")
        for pattern, replacement in NAMES:
            text = pattern.sub(replacement, text)
        lines.append(f"{name}={text}")
    return "\n".join(lines) + "\n"
