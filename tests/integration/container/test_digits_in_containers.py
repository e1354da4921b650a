"""Real training in containers: two hosts with two ranks each, with mpirun and torchrun, in Docker and Podman."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from engine_daemon import Engine

from cloudtrain import Estimator
from cloudtrain.storage import open_store

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits_pytorch"
WITHOUT_COMPILER = Path(__file__).parents[2] / "without_compiler.py"
"""For the script only: its import would change this process for all other tests."""

DIGITS = 1437
"""The size of the training set."""


@pytest.mark.parametrize(
    ("name", "launcher"),
    [
        ("engine", "mpi"),
        pytest.param("engine", "torch_distributed", marks=pytest.mark.soak),
        pytest.param("podman", "mpi", marks=pytest.mark.soak),
    ],
)
def test_digits_on_four_ranks(
    name: str, launcher: str, request: pytest.FixtureRequest, base_image: str, tmp_path: Path
) -> None:
    engine: Engine = request.getfixturevalue(name)
    data, out, checkpoints = (tmp_path.joinpath(name).as_uri() for name in ("data", "out", "checkpoints"))
    subprocess.run([sys.executable, str(EXAMPLE / "prepare.py"), data], check=True)
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    shutil.copy(WITHOUT_COMPILER, source)
    script = (source / "train.py").read_text()
    (source / "train.py").write_text(
        script.replace("import torch\n", "import torch\nimport without_compiler\n", 1)
    )
    estimator = Estimator(
        "train.py",
        source_dir=str(source),
        instance_type="local",
        image_uri=base_image,
        platform_options={"engine": engine.url},
        instance_count=2,
        distribution={launcher: {"processes_per_host": 2}},
        hyperparameters={"epochs": 2},
        output_path=out,
        checkpoint_s3_uri=checkpoints,
        metric_definitions=[{"Name": "accuracy", "Regex": "test:accuracy=([0-9.]+)"}],
    )
    job = estimator.fit({"train": data}, logs=False)
    described = job.describe()
    assert (described.platform, described.failure, described.exit_code) == ("container", None, 0)
    assert described.metrics["accuracy"] > 0.5

    log = job.logs()
    said = sorted(re.findall(r"^\[rank (\d)\] rank (\d) of 4 trains on (\d+)", log, re.MULTILINE))
    assert said == [(str(rank), str(rank), str(DIGITS // 4)) for rank in range(4)]
    losses = [float(loss) for loss in re.findall(r"train:loss=([0-9.]+)", log)]
    assert losses[0] > losses[1] > 0

    assert described.model_data == f"{out}/{job.name}/output/model.tar.gz"
    model = open_store(f"{out}/{job.name}/output").read("model.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(model)) as tar:
        assert [member.name for member in tar if member.isfile()] == ["model.pt"]
    assert [entry.key for entry in open_store(checkpoints).list() if entry.key.endswith("002/manifest.json")]
    assert engine.leftovers() == []
