"""``cloudtrain init``."""

from __future__ import annotations

import random
import shlex
from importlib.resources import files
from pathlib import Path

import click

from cloudtrain.cli._new_files import write_new_files
from cloudtrain.cli._options import json_option
from cloudtrain.cli._output import echo_json

TORCHRUN = "torch_distributed"
FRAMEWORKS = {
    "torch": ("processes", "[]", "epochs: 10\n  lr: 0.05"),
    "horovod": ("horovod", "[]", "epochs: 10\n  lr: 0.05"),
    "keras": ("processes", "[]", "epochs: 10\n  lr: 0.05"),
    "lightning": (TORCHRUN, '[--checkpoints, "{checkpoint_dir}"]', "epochs: 10\n  lr: 0.05"),
    "transformers": (
        TORCHRUN,
        '[--output_dir, "{checkpoint_dir}"]',
        "num_train_epochs: 10\n  learning_rate: 0.05\n  per_device_train_batch_size: 8\n  save_strategy: epoch\n"
        "  save_total_limit: 1\n  logging_steps: 6\n  report_to: none\n  disable_tqdm: true\n"
        "  ddp_find_unused_parameters: false",
    ),
}
"""For each framework: the distribution, the script's arguments, and its hyperparameters, as in YAML."""
PACKAGES = {
    "torch": ("numpy", "torch>=2.4"),
    "horovod": ("numpy", "torch>=2.4"),
    "keras": ("keras>=3", "numpy", "tensorflow>=2.16", "torch>=2.4"),
    "lightning": ("lightning>=2", "numpy", "torch>=2.4"),
    "transformers": ("accelerate>=1.1", "numpy", "torch>=2.4", "transformers>=4.46"),
}
"""For each framework: the packages of its script. cloudtrain has Horovod's API, and sends data through PyTorch."""
OTHER_NAMES = {"hf": "transformers", "huggingface": "transformers", "pytorch": "torch", "tensorflow": "keras"}
REQUIREMENTS = """\
# The packages of train.py. A job installs what its Python lacks, once for all jobs with these lines.
# PyTorch for Linux comes with CUDA: gigabytes. For one without, remove the # of the next line:
# --index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple
{packages}
"""

JOB = """\
# cloudtrain submit train.yaml
source_dir: src
entry_point: train.py
platform: local              # or container, slurm, kubernetes, sagemaker, ...: cloudtrain platforms
instance_count: 1
distribution:
  {launcher}: {{processes_per_host: 2}}   # without this number: one rank for each GPU
inputs: {{train: data}}        # a folder, or s3://...
arguments: {arguments}
hyperparameters:
  {hyperparameters}
"""
ROWS = 96
WEIGHTS = (1.0, -2.0, 3.0)


class _Framework(click.Choice[str]):
    def convert(self, value: str, parameter: click.Parameter | None, context: click.Context | None) -> str:
        try:
            return super().convert(value, parameter, context)
        except click.BadParameter as error:
            name = OTHER_NAMES.get(value.lower())
            advice = f"Did you mean {name!r}?" if name else "For another one: cloudtrain examples"
            self.fail(f"{error.message} {advice}", parameter, context)


@click.command("init")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--framework", type=_Framework([*FRAMEWORKS]), default="torch", show_default=True,
    help="What the script trains with.",
)  # fmt: skip
@json_option
def command(folder: Path, framework: str, as_json: bool) -> None:
    """Write a job that works into FOLDER: a script, its job file, and data to replace by your own.

    The job trains on two ranks of this machine, in seconds. The first one installs src/requirements.txt, where the
    job's Python lacks it.

    \b
    Examples:
      cloudtrain init first
      cloudtrain init first --framework lightning
    """
    written = write_job(folder, framework)
    if as_json:
        echo_json({"folder": str(folder), "framework": framework, "files": [str(path) for path in written]})
        return
    for path in written:
        click.echo(path)
    click.echo(
        f"\nRun it: cd {shlex.quote(str(folder))} && cloudtrain submit train.yaml\n"
        "It first installs what src/requirements.txt names and its Python lacks: "
        f"{', '.join(PACKAGES[framework])}.\n"
        "PyTorch comes with CUDA, in gigabytes: for a machine without a GPU, see src/requirements.txt.\n"
        "What is missing here: cloudtrain doctor train.yaml",
        err=True,
    )


def write_job(folder: Path, framework: str) -> list[Path]:
    """Write the files of a job, and return their paths. Raises click's errors, and then leaves no new files."""
    launcher, arguments, hyperparameters = FRAMEWORKS[framework]
    job = JOB.format(launcher=launcher, arguments=arguments, hyperparameters=hyperparameters)
    script = files("cloudtrain.cli").joinpath("starters", f"{framework}.py").read_text(encoding="utf-8")
    contents = {
        folder / "train.yaml": job.replace("arguments: []\n", ""),
        folder / "src" / "train.py": script,
        folder / "src" / "requirements.txt": REQUIREMENTS.format(packages="\n".join(PACKAGES[framework])),
        folder / "data" / "train.csv": table(),
    }
    return write_new_files({path: text.encode() for path, text in contents.items()})


def table() -> str:
    """Rows of three features and a label, which is their weighted sum with a little noise."""
    source = random.Random(0)
    lines = ["x1,x2,x3,y"]
    for _ in range(ROWS):
        features = [source.uniform(-1, 1) for _ in WEIGHTS]
        label = sum(w * x for w, x in zip(WEIGHTS, features, strict=True)) + source.gauss(0, 0.01)
        lines.append(",".join(f"{value:.4f}" for value in (*features, label)))
    return "\n".join(lines) + "\n"
