"""The attempts of `test_attempts_under_attack`: reads a document a line, and forks a rank for each.

The state of a run has the number of the attempt that made each of its steps, so a mixture shows. A rank writes what
happens to it as lines of JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.errors import CheckpointError


def state_of(history: list[int]) -> dict[str, Any]:
    return {
        "history": list(history),
        "frozen": np.arange(64.0),  # one file for all steps: deleted too early, they are all damaged
        "weights": np.array([*history, 0.0]),
    }


def train(rank: int, attempt: int, given: dict[str, Any]) -> None:
    log = os.open(given["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(what: str, **fields: Any) -> None:
        os.write(log, (json.dumps({"what": what, "time": time.monotonic(), **fields}) + "\n").encode())

    try:
        checkpointer = Checkpointer(given["uri"], keep=given["keep"], asynchronous=given["asynchronous"])
        restored = checkpointer.restore()
        history = list(restored.state["history"]) if restored else []
        if restored:
            expected = state_of(history)
            for name in ("frozen", "weights"):
                np.testing.assert_array_equal(restored.state[name], expected[name])
        say("restored", step=restored.step if restored else 0, history=history)
        other = Path(given["other"])
        while rank == 0 and not (other.exists() and other.stat().st_size):
            time.sleep(0.002)
        source = random.Random(given["seed"])
        while rank == 0:
            history.append(attempt)
            checkpointer.save(len(history), state_of(history))
            say("saved", step=len(history) - given["asynchronous"])
            time.sleep(source.choice((0, 0, 0.005, 0.05)))
    except CheckpointError as error:
        say("refused", why=error.message)
    except BaseException as error:
        say("failed", why=repr(error))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        given = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.environ.update(given["environ"])
            train(given["rank"], given["attempt"], given)
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
