"""One contestant of log_metrics.py, in its environment: ``python _log_contestant.py NAME WORK STEPS [VALUES]``.

Prints JSON: the seconds of a call with one value; the seconds of each step, which does a fixed amount of work and logs
100 values; and the CPU seconds of a step, of all threads and of this thread outside of the work. ``VALUES`` is the
number of values in a call.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

Log = Callable[[Mapping[str, float], int], object]
CALLS = 200
"""The number of calls with one value, which are made as fast as possible."""
WARM_UP = 1.5
"""The pause after the first call, in which threads import modules."""
VALUES = {f"layer_{number}/norm": 0.1 * number for number in range(100)}


def no_log(_folder: str) -> tuple[Log, Callable[[], object]]:
    return lambda values, step: None, lambda: None


def cloudtrain(folder: str) -> tuple[Log, Callable[[], object]]:
    os.environ["CLOUDTRAIN_HEARTBEAT_FILE"] = f"{folder}/rank-0.heartbeat"
    os.environ["CLOUDTRAIN_EVENTS_FILE"] = f"{folder}/events.jsonl"
    from cloudtrain import log
    from cloudtrain.observe import metric_log

    return lambda values, step: log(values, step=step), lambda: metric_log._log and metric_log._log.close()


def plain_append(folder: str) -> tuple[Log, Callable[[], object]]:
    file = open(f"{folder}/metrics.jsonl", "a")  # noqa: SIM115

    def log(values: Mapping[str, float], step: int) -> None:
        file.write(json.dumps({"step": step, "time": time.time(), **values}) + "\n")
        file.flush()

    return log, file.close


def tensorboard(folder: str) -> tuple[Log, Callable[[], object]]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)

    def log(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log, writer.close


def wandb(folder: str) -> tuple[Log, Callable[[], object]]:
    import wandb

    run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(silent=True))
    return lambda values, step: run.log(dict(values), step=step), run.finish


def trackio(folder: str) -> tuple[Log, Callable[[], object]]:
    os.environ["TRACKIO_DIR"] = folder
    import trackio

    run = trackio.init(project="benchmark", embed=False)
    return lambda values, step: run.log(dict(values), step=step), trackio.finish


def mlflow(folder: str) -> tuple[Log, Callable[[], object]]:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    mlflow.set_tracking_uri(f"file://{folder}/mlruns")
    mlflow.start_run()
    return lambda values, step: mlflow.log_metrics(dict(values), step=step), mlflow.end_run


CONTESTANTS = {
    "no log": no_log,
    "cloudtrain": cloudtrain,
    "a plain append": plain_append,
    "TensorBoard": tensorboard,
    "wandb offline": wandb,
    "trackio": trackio,
    "MLflow, file store": mlflow,
}


def work(amount: int) -> int:
    """Run Python code, which is the worst case for threads that also need the interpreter."""
    total = 0
    for number in range(amount):
        total += number * number
    return total


def main() -> None:
    name, amount, steps, count = sys.argv[1], *map(int, (*sys.argv[2:], len(VALUES))[:3])
    names = [*VALUES]
    starts = range(0, len(names), count)
    groups = [{name: VALUES[name] for name in names[begin : begin + count]} for begin in starts]
    with tempfile.TemporaryDirectory() as folder:
        log, close = CONTESTANTS[name](folder)
        log({"loss": 0.5}, 0)
        time.sleep(WARM_UP)
        began = time.perf_counter()
        for step in range(1, CALLS + 1):
            log({"loss": 0.5}, step)
        call = (time.perf_counter() - began) / CALLS
        took, cpu, own = [], time.process_time(), 0.0
        for step in range(CALLS + 1, CALLS + 1 + steps):
            began = time.perf_counter()
            work(amount)
            worked = time.thread_time()
            for group in groups:
                log(group, step)
            own += time.thread_time() - worked
            took.append(time.perf_counter() - began)
        cpu = (time.process_time() - cpu) / steps
        close()
    print(json.dumps({"call": call, "steps": took, "cpu": cpu, "own": own / steps}))


if __name__ == "__main__":
    main()
