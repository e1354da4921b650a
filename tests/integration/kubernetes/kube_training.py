"""Trainings on the cluster of the tests: estimators, and a script that a fault interrupts once."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from kube_fixtures import Namespace

from cloudtrain import Estimator

OUTPUTS = "/outputs"

WAITS_ONCE = f"""
import os, time

mine = "{OUTPUTS}/began-" + os.environ["SM_CURRENT_HOST"]
began = os.path.exists(mine)
open(mine, "w").close()
print("runs again" if began else "waits for its end", flush=True)
while not began:
    time.sleep(0.05)
"""
"""It waits for its end when it runs for the first time, and succeeds when it runs again."""


def estimator(
    folder: Path, script: str, *, options: dict[str, Any] | None = None, **fields: Any
) -> Estimator:
    """An estimator for two hosts whose outputs are on the claim ``outputs``."""
    (folder / "train.py").write_text(textwrap.dedent(script))
    defaults = {
        "platform": "kubernetes",
        "image_uri": "python",
        "instance_count": 2,
        "output_path": f"file://{OUTPUTS}/out",
        "distribution": {"processes": {"processes_per_host": 1}},
        "stop_grace": 2,
    }
    claims = {"volumes": [f"outputs:{OUTPUTS}"]} if "output_path" not in fields else {}
    return Estimator(
        str(folder / "train.py"), platform_options={**claims, **(options or {})}, **{**defaults, **fields}
    )


def exit_codes(kubernetes: Namespace) -> dict[str, int]:
    """The exit code of each host that has ended, also where its pod has been deleted since, as its node knows them."""
    workers = list(kubernetes.cluster.kubelet.workers.values())
    return {
        one.pod["spec"]["hostname"]: one.containers[0].exit_code
        for one in workers
        if one.namespace == kubernetes.name and one.containers[0].exit_code is not None
    }
