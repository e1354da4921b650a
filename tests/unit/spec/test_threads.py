"""Threads may describe jobs at the same time, also the first ones of a process."""

from __future__ import annotations

import subprocess
import sys

ROUNDS = """
import os, sys, threading
from cloudtrain.spec import TrainingJob

sys.setswitchinterval(1e-6)
for _ in range(30):
    if not os.fork():
        together = threading.Barrier(4)
        fields = {"entry_point": "train.py", "platform": "local", "distribution": {"torch_distributed": {}}}
        threads = [threading.Thread(target=lambda: (together.wait(), TrainingJob.from_dict(fields))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(0)
print([os.wait()[1] for _ in range(30)])
"""


def test_the_first_jobs_of_a_process_in_several_threads() -> None:
    command = [sys.executable, "-c", ROUNDS]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (said.returncode, said.stdout) == (0, f"{[0] * 30}\n"), said.stderr
