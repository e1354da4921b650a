"""Submitting a job to SageMaker: the whole process, against both SageMaker SDKs, on one moto server.

    python benchmarks/sagemaker_submit.py [--runs 5] [--large-runs 3] [--without-3]

Each submit is a separate Python process, measured from its start to its end, without waiting for the job. The
contestants take turns. CPU is the user and system time of the process: on a busy machine, it is more reliable than
wall-clock time.

AWS is moto in another process, on loopback: the times do not include the network to AWS. The SDKs' telemetry is turned
off, and the address of STS is passed to them, because they ignore AWS_ENDPOINT_URL for it.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import _peers
from _aws import REGION, ROLE, Aws, running_aws, without_telemetry
from _common import Timing, header, row
from packing import make_tree, settle

IMAGE = f"763104351884.dkr.ecr.{REGION}.amazonaws.com/pytorch-training:2.5.1-cpu-py311"

OURS = f"""
from cloudtrain import Estimator
estimator = Estimator(
    entry_point="train.py", source_dir="source", role="{ROLE}", image_uri="{IMAGE}", instance_count=1,
    instance_type="ml.m5.large", hyperparameters={{"epochs": 5}},
)
estimator.fit({{"train": "s3://my-data/train"}}, wait=False)
"""

SDK_2 = f"""
import os, sagemaker.session
sagemaker.session.sts_regional_endpoint = lambda region: os.environ["AWS_ENDPOINT_URL"]
from sagemaker.pytorch import PyTorch
estimator = PyTorch(
    entry_point="train.py", source_dir="source", role="{ROLE}", image_uri="{IMAGE}", instance_count=1,
    instance_type="ml.m5.large", hyperparameters={{"epochs": 5}},
)
estimator.fit({{"train": "s3://my-data/train"}}, wait=False)
"""

SDK_3 = f"""
import os
from sagemaker.core.helper import session_helper
session_helper.sts_regional_endpoint = lambda region: os.environ["AWS_ENDPOINT_URL"]
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode
trainer = ModelTrainer(
    training_image="{IMAGE}", role="{ROLE}", compute=Compute(instance_type="ml.m5.large", instance_count=1),
    source_code=SourceCode(source_dir="source", entry_script="train.py"), hyperparameters={{"epochs": 5}},
    base_job_name="train",
)
data = InputData(channel_name="train", data_source="s3://my-data/train")
trainer.train(input_data_config=[data], wait=False, logs=False)
"""

PRINT_MEMORY = """
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""


@dataclass
class Submits:
    """The costs of one contestant's runs."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    kilobytes: list[int] = field(default_factory=list)
    calls: list[list[str]] = field(default_factory=list)

    @property
    def megabytes(self) -> float:
        return median(self.kilobytes) * 1024 / 1e6

    @property
    def most_calls(self) -> int:
        return max(len(calls) for calls in self.calls)


@dataclass(frozen=True)
class Submitter:
    """One contestant: its interpreter, and the script that submits."""

    python: Path
    script: str

    def submit(self, folder: Path, aws: Aws, into: Submits) -> None:
        """Submit ``folder/source`` in one process. Raises SystemExit if it fails."""
        aws.calls()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        done = subprocess.run(
            [str(self.python), "-c", self.script + PRINT_MEMORY],
            cwd=folder,
            env=_environment(folder, aws.env),
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"{self.python} failed:\n{done.stderr}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        into.seconds.append(seconds)
        into.cpu_seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        into.kilobytes.append(int(done.stdout.split()[-1]))
        into.calls.append(aws.calls())


def _environment(folder: Path, aws: Mapping[str, str]) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CLOUDTRAIN_"))}
    return {
        **ours,
        **aws,
        "CLOUDTRAIN_HOME": str(folder / "home"),
        "CLOUDTRAIN_CONFIG": "",
        "XDG_CONFIG_HOME": str(folder / "config"),
        **without_telemetry(folder),
    }


def in_turns(
    submitters: Mapping[str, Submitter],
    folder: Path,
    aws: Aws,
    runs: int,
    before: Callable[[int], None],
) -> dict[str, Submits]:
    """``runs`` rounds in which each has one turn, after ``before``; an additional first round is not counted."""
    submits = {name: Submits() for name in submitters}
    for turn in range(runs + 1):
        for name, submitter in submitters.items():
            before(turn)
            submitter.submit(folder, aws, submits[name] if turn else Submits())
    return submits


def show(what: str, submits: Mapping[str, Submits]) -> None:
    """Print rows for wall-clock time, CPU time, AWS calls and memory: cloudtrain against each of the others."""
    ours, *others = submits
    for name in others:
        print(row(what, Timing.of(submits[ours].seconds), name, Timing.of(submits[name].seconds)))
    for name in others:
        own, other = (Timing.of(submits[who].cpu_seconds) for who in (ours, name))
        print(row(f"{what}: CPU", own, name, other))
    for name in others:
        _row(f"{what}: AWS calls", submits[ours].most_calls, name, submits[name].most_calls, "")
    for name in others:
        _row(f"{what}: peak memory", submits[ours].megabytes, name, submits[name].megabytes, " MB")


def _row(what: str, ours: float, name: str, peer: float, unit: str) -> None:
    print(f"| {what} | {ours:.0f}{unit} | {name}: {peer:.0f}{unit} | {peer / ours:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="of the small submits; 0: none")
    parser.add_argument("--large-runs", type=int, default=3, help="of the large ones")
    parser.add_argument("--without-3", action="store_true", help="leave out version 3 of the SDK")
    options = parser.parse_args()
    submitters = {
        "cloudtrain": Submitter(_peers.cloudtrain(torch=False), OURS),
        _peers.SAGEMAKER_2: Submitter(_peers.sagemaker_2(), SDK_2),
    }
    if not options.without_3:
        submitters[_peers.SAGEMAKER_3] = Submitter(_peers.sagemaker_3(), SDK_3)
    with running_aws() as aws, tempfile.TemporaryDirectory() as scratch:
        print(header())
        if options.runs:
            first(submitters, Path(scratch, "first"), aws, options.runs)
            small(submitters, Path(scratch, "small"), aws, options.runs)
        if options.large_runs:
            large(submitters, Path(scratch, "large"), aws, options.large_runs)


def first(submitters: Mapping[str, Submitter], folder: Path, aws: Aws, runs: int) -> None:
    """The first submission from a machine: without, then with the account's default bucket."""
    script = folder / "source" / "train.py"
    script.parent.mkdir(parents=True)

    def forget(_: int) -> None:
        script.write_text(f"print({time.time_ns()})\n")
        shutil.rmtree(folder / "home", ignore_errors=True)

    def remove(turn: int) -> None:
        forget(turn)
        aws.remove_bucket()

    show("submit for the first time in an account", in_turns(submitters, folder, aws, runs, remove))
    show("submit for the first time from a machine", in_turns(submitters, folder, aws, runs, forget))


def small(submitters: Mapping[str, Submitter], folder: Path, aws: Aws, runs: int) -> None:
    script = folder / "source" / "train.py"
    script.parent.mkdir(parents=True)

    def change(_: int) -> None:
        script.write_text(f"print({time.time_ns()})\n")

    show("submit a script that has changed", in_turns(submitters, folder, aws, runs, change))
    settle(folder)
    show("submit it again", in_turns(submitters, folder, aws, runs, lambda turn: None))


def large(submitters: Mapping[str, Submitter], folder: Path, aws: Aws, runs: int) -> None:
    source = folder / "source"
    make_tree(source)

    def change(_: int) -> None:
        (source / "train.py").write_text(f"print({time.time_ns()})\n")
        shutil.rmtree(folder / "home" / "archives", ignore_errors=True)

    show("submit 2,000 files / 50 MB, first time", in_turns(submitters, folder, aws, runs, change))
    settle(source)
    show("submit them again", in_turns(submitters, folder, aws, runs, lambda turn: None))


if __name__ == "__main__":
    main()
