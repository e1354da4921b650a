"""A training script with several ranks that is not distributed gives one warning; no other script gives one."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreground_runs import LOCAL, run

WARNING = (
    "[rank 0] [cloudtrain] WARNING: the script is not distributed: each of the 2 ranks trained its own model"
)

IMPORTS = "import lightgbm, os\n"
"""A library that trains, in the folder of the script: it imports nothing, and so starts fast."""

DISTRIBUTED = {
    "torch.distributed": "import torch; torch.distributed.init_process_group('gloo')",
    "Horovod's name": IMPORTS + "import horovod",
    "mpi4py": IMPORTS + "from mpi4py import MPI",
    "the rank": IMPORTS + "os.environ.get('RANK', 0)",
    "the whole environment": IMPORTS
    + "import subprocess; subprocess.run(['true'], env=dict(os.environ), check=True)",
    "tf.distribute": IMPORTS + "os.getenv('TF_CONFIG')",
    "jax.distributed": IMPORTS + "'JAX_COORDINATOR_ADDRESS' in os.environ",
}


def test_a_script_that_is_not_distributed(tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    (tmp_path / "train.py").write_text("import torch")
    done = run(tmp_path, *LOCAL, "python", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith(WARNING)
    assert "To train one model, use DistributedDataParallel, or start one rank (-np 1; " in line


def test_one_that_reads_other_variables_and_exits(tmp_path: Path) -> None:
    (tmp_path / "lightgbm.py").touch()
    (tmp_path / "train.py").write_text(
        f"{IMPORTS}os.environ.get('OMP_NUM_THREADS'), {{k: v for k, v in os.environ.items() if k == 'PATH'}}, exit()"
    )
    done = run(tmp_path, *LOCAL, "--mpi", "python", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith(WARNING)
    assert "To train one model, start one rank (-np 1; " in line


@pytest.mark.parametrize("script", DISTRIBUTED.values(), ids=DISTRIBUTED)
def test_a_script_that_reads_its_rank(tmp_path: Path, script: str) -> None:
    (tmp_path / "lightgbm.py").touch()
    (tmp_path / "train.py").write_text(script)
    done = run(tmp_path, *LOCAL, "--mpi", "python", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is not distributed" not in done.stdout


@pytest.mark.parametrize(("ranks", "script"), [("1", IMPORTS), ("2", "print('no training')")])
def test_one_rank_and_a_script_that_trains_nothing(tmp_path: Path, ranks: str, script: str) -> None:
    (tmp_path / "lightgbm.py").touch()
    (tmp_path / "train.py").write_text(script)
    done = run(tmp_path, "-np", ranks, "python", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is not distributed" not in done.stdout
