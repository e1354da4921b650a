"""One contestant of sweep.py: ``python _sweep_contestant.py NAME SAMPLER TRIALS``.

Prints JSON: the seconds that the trials took, and the peak memory of the process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from _common import resident


def cloudtrain(sampler: str, trials: int, folder: Path) -> Callable[[], object]:
    """A controller with a platform whose jobs end as soon as they are submitted."""
    os.environ["CLOUDTRAIN_HOME"] = str(folder / "home")
    from cloudtrain.platforms import JobDescription
    from cloudtrain.sweep.controller import control
    from cloudtrain.sweep.plan import make_plan
    from cloudtrain.sweep.start import create
    from cloudtrain.testing import FakePlatform

    class NoOp(FakePlatform):
        def describe(self, job_name: str) -> JobDescription:
            number = int(job_name[-4:])
            return replace(super().describe(job_name), metrics={"loss": number % 7 + 0.1})

    (folder / "train.py").write_text("print('loss')")
    fields = {"entry_point": str(folder / "train.py"), "platform": "local"}
    plan = make_plan(
        "bench", {"lr": "log:1e-5..1e-1", "depth": "1..8"}, "loss", trials=trials, sampler=sampler, parallel=8
    )
    started = create(fields, plan)
    return lambda: control(started.journal, NoOp())


def optuna(sampler: str, trials: int, folder: Path, *, is_durable: bool = False) -> Callable[[], object]:
    import optuna
    from optuna.distributions import FloatDistribution, IntDistribution
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    storage = JournalStorage(JournalFileBackend(str(folder / "journal"))) if is_durable else None
    study = optuna.create_study(storage=storage, sampler=samplers[sampler](seed=1))
    space = {"lr": FloatDistribution(1e-5, 1e-1, log=True), "depth": IntDistribution(1, 8)}

    def run() -> None:
        for first in range(0, trials, 8):
            asked = [study.ask(space) for _ in range(first, min(first + 8, trials))]
            for number, trial in enumerate(asked, first):
                study.tell(trial, number % 7 + 0.1)

    return run


def optuna_journal(sampler: str, trials: int, folder: Path) -> Callable[[], object]:
    return optuna(sampler, trials, folder, is_durable=True)


def ray_tune(sampler: str, trials: int, folder: Path, *, reuses: bool = False) -> Callable[[], object]:
    """Ray Tune on this machine, which starts a process for each trial unless its actors are reused.

    The start of Ray is not measured.
    """
    import ray
    from ray import tune

    assert sampler == "random", "OptunaSearch would need Optuna in the environment of Ray"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

    class NoOp(tune.Trainable):
        def step(self) -> dict[str, object]:
            return {"loss": 1.0, "done": True}

        def reset_config(self, new_config: dict[str, object]) -> bool:
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> None: ...

    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, _temp_dir=str(folder / "ray"))
    tuner = tune.Tuner(
        NoOp,
        param_space={"lr": tune.loguniform(1e-5, 1e-1), "depth": tune.randint(1, 9)},
        tune_config=tune.TuneConfig(
            num_samples=trials, max_concurrent_trials=8, metric="loss", mode="min", reuse_actors=reuses
        ),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    )
    return tuner.fit


def ray_tune_reusing(sampler: str, trials: int, folder: Path) -> Callable[[], object]:
    return ray_tune(sampler, trials, folder, reuses=True)


CONTESTANTS = {"cloudtrain": cloudtrain, "Optuna, in memory": optuna, "Optuna, journal": optuna_journal}
PEERS = {"Ray Tune": ray_tune, "Ray Tune, actors reused": ray_tune_reusing}
"""The contestants with a separate environment."""

if __name__ == "__main__":
    _, who, sampler, trials = sys.argv
    with tempfile.TemporaryDirectory() as folder:
        run = {**CONTESTANTS, **PEERS}[who](sampler, int(trials), Path(folder))
        began = time.perf_counter()
        run()
        took = time.perf_counter() - began
    print(json.dumps({"seconds": took, "memory": resident("VmHWM")}))
