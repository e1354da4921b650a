"""Keras ``fit`` on two CPU ranks, compared with tf.distribute.MultiWorkerMirroredStrategy and the real Horovod.

    python benchmarks/keras_fit.py [--runs 5] [--steps 60] [--quick] [--json]

Measures the time of a training step on the slower rank, with the same model (1.9 million parameters) and batches.
Every contestant has two ranks, which run for the whole benchmark and take turns; waiting ranks read from a pipe. To
include the real Horovod on tf_keras, set CLOUDTRAIN_HOROVOD_TF_PYTHON to a Python that has it. Prints rows of a
Markdown table. Needs ``scripts/build_tensorflow``.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from _common import OURS, PEERS, REPOSITORY, PeerMissing, Report, in_turns, run_parts

RANKS = 2
BATCH = 64
PYTHON = PEERS / "tensorflow" / "bin" / "python"
HOROVOD = os.environ.get("CLOUDTRAIN_HOROVOD_TF_PYTHON", "")
OURS_LEGACY = "cloudtrain, tf_keras"
MIRRORED = "MultiWorkerMirroredStrategy, tf_keras"
REAL = "Horovod, tf_keras"
LEGACY = {"TF_USE_LEGACY_KERAS": "1"}


def fit(report: Report, given: argparse.Namespace) -> None:
    if given.rank_of:
        train_in_turns(given.rank_of, given.steps)
        return
    steps, python = 2 if given.quick else given.steps, str(PYTHON)
    if not PYTHON.exists():
        sys.exit("TensorFlow is not installed; run scripts/build_tensorflow")
    contestants = {
        OURS: Ranks("cloudtrain", python, steps, {}), OURS_LEGACY: Ranks("cloudtrain", python, steps, LEGACY)
    }  # fmt: skip
    if not given.quick:
        contestants[MIRRORED] = Ranks("mirrored", python, steps, LEGACY)
    with report.optional(REAL):
        if not HOROVOD:
            raise PeerMissing("CLOUDTRAIN_HOROVOD_TF_PYTHON names no Python that has it")
        contestants[REAL] = Ranks("horovod", HOROVOD, steps, LEGACY)
    try:
        seconds = in_turns({name: ranks.turn for name, ranks in contestants.items()}, given.runs)
    finally:
        for ranks in contestants.values():
            ranks.close()
    report.add_all("step of Keras `fit`", seconds)


class Ranks:
    """The processes of one contestant."""

    def __init__(self, contestant: str, python: str, steps: int, variables: dict[str, str]) -> None:
        ports = [free_port() for _ in range(RANKS)]
        workers = [f"127.0.0.1:{port}" for port in ports]
        world = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1"}
        base = {**os.environ, **variables, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
        self._processes = [
            subprocess.Popen(
                [python, __file__, "--rank-of", contestant, "--steps", str(steps)],
                env={
                    **base,
                    **(places(contestant, workers, rank) or {**world, "MASTER_PORT": str(ports[0])}),
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "PYTHONPATH": "" if contestant == "horovod" else str(REPOSITORY),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        self._answers()  # all have built their models

    def turn(self) -> float:
        """Train, and return the seconds per step of the slower rank."""
        for process in self._processes:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        return max(self._answers())

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _answers(self) -> list[float]:
        lines = [process.stdout.readline() for process in self._processes if process.stdout]
        if not all(lines):
            raise RuntimeError("a rank ended; its output is above")
        return [float(line) for line in lines]


def places(contestant: str, workers: list[str], rank: int) -> dict[str, str]:
    """Return the environment variables for a rank of the other contestants."""
    if contestant == "mirrored":
        task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        return {"TF_CONFIG": json.dumps(task)}
    if contestant == "horovod":  # as horovodrun sets them for Gloo
        count, place = str(RANKS), str(rank)
        return {
            **{f"HOROVOD_{name}SIZE": count for name in ("", "LOCAL_")},
            **{f"HOROVOD_{name}RANK": place for name in ("", "LOCAL_")},
            "HOROVOD_CROSS_RANK": "0",
            "HOROVOD_CROSS_SIZE": "1",
        }
    return {}


def train_in_turns(contestant: str, steps: int) -> None:
    """Run a rank. Print a line when the model is built, then the seconds per step for each line read."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps the output of libraries out of the answers
    train = fit_of(contestant, steps)
    train(2)
    print(0.0, file=answers, flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        train(steps)
        print((time.perf_counter() - start) / steps, file=answers, flush=True)


def fit_of(contestant: str, steps: int) -> Callable[[int], Any]:
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH * steps, 784)).astype(np.float32)
    y = rng.integers(0, 10, size=BATCH * steps)
    if contestant == "mirrored":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = compiled(tf, lambda optimizer: optimizer)
        # every worker reads its own batches, as with the other contestants
        data = strategy.distribute_datasets_from_function(
            lambda context: tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH)
        )
    else:
        if contestant == "cloudtrain":
            import cloudtrain.distributed.tensorflow.keras as hvd
        else:
            import horovod.tensorflow.keras as hvd
        hvd.init()
        model = compiled(tf, hvd.DistributedOptimizer)
        data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH)
    return lambda count: model.fit(data, epochs=1, steps_per_epoch=count, verbose=0)


def compiled(tf: Any, wrap: Callable[[Any], Any]) -> Any:
    layers = tf.keras.layers
    hidden = [layers.Dense(1024, activation="relu"), layers.Dense(1024, activation="relu"), layers.Dense(64)]
    model = tf.keras.Sequential([tf.keras.Input((784,)), *hidden, layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(wrap(tf.keras.optimizers.SGD(0.01, momentum=0.9)), loss)
    return model


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    run_parts(__doc__, {"fit": fit}, options=(("--steps", 60), ("--rank-of", None)))
