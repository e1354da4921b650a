"""A sweep whose trials run in containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_daemon import IMAGE, Engine

from cloudtrain import Estimator, Job, JobStatus, Sweep

SCRIPT = """
import argparse, os
import cloudtrain
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
open(os.environ["SM_MODEL_DIR"] + "/model", "w").write(str(rate))
cloudtrain.log(loss=rate, step=1)
"""


@pytest.mark.soak
def test_trials_run_in_containers_and_the_best_one_has_its_model(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(SCRIPT)
    estimator = Estimator(
        str(tmp_path / "train.py"),
        image_uri=IMAGE,
        instance_count=2,
        platform="container",
        platform_options={"engine": engine.url},
    )
    started = Sweep(estimator, {"rate": [0.3, 0.1, 0.2]}, "loss", sampler="grid", parallel=2).fit()
    assert started.status == "Completed"
    trials = started.trials.all
    assert [Job.attach(trial.name).status for trial in trials] == [JobStatus.COMPLETED] * 3
    best = started.best()
    assert (best.value, best.parameters) == (0.1, {"rate": 0.1})
    [model] = Job.attach(best.name).download(tmp_path / "got")
    assert model.name == "model.tar.gz"
