"""SageMaker: packing a source, submitting a job, and following its logs, against both SageMaker SDKs.

    python benchmarks/on_sagemaker.py [pack] [submit] [large] [logs] [--runs 5] [--sdk 2|3] [--quick] [--json]

- ``pack``: 2,000 files with a total of 50 MB, the first and the second time. Of the SDK, only the packing is timed
  (`sagemaker.utils.create_tar_file` on the files that `tar_and_upload_dir` passes to it), without its import.
- ``submit``: a script. Each submit is a separate Python process, measured from its start to its end, without waiting
  for the job. CPU is the user and system time of the process: on a busy machine, it is more reliable than wall-clock
  time.
- ``large``: the same with the 2,000 files. A source of more than 8 MiB is uploaded in parts, each an AWS call.
- ``logs``: 200 streams of 1,000 lines, which are there already, or printed over ``--seconds`` while they are followed.
  The lag of a line is the time from its print to its arrival at the reader. CloudWatch answers 25 GetLogEvents a second
  per account and region; cloudtrain sends 20: a round of 200 busy streams takes 10 seconds. The SDK is stopped after
  ``--patience`` seconds.

AWS is moto, and for logs the tests' scripted service, in another process, on loopback: the times do not include the
network to AWS. The SDKs' telemetry is turned off, and the address of STS is passed to them, because they ignore
AWS_ENDPOINT_URL for it. The contestants take turns. Version 3 of the SDK has no counterpart to ``logs`` and ``pack``.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from _aws import REGION, ROLE, Aws, running_aws, without_telemetry
from _common import OURS, Report, measure, run_parts
from _peers import SAGEMAKER_2, SAGEMAKER_3, cloudtrain, peer

from cloudtrain.packaging import pack as pack_source

IMAGE = f"763104351884.dkr.ecr.{REGION}.amazonaws.com/pytorch-training:2.5.1-cpu-py311"

SUBMIT = f"""
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


FILES = 2_000
TEXT_FILES = 1_900
BYTES = 50_000_000
PACK_WITH_SDK = """
import os, sys, time
from sagemaker import fw_utils, utils
source, target = sys.argv[1:]
start = time.perf_counter()
utils.create_tar_file(fw_utils._list_files_to_compress("train.py", source), target)
print(time.perf_counter() - start, os.path.getsize(target))
"""


SERVICE = Path(__file__).with_name("_log_service.py")

READ = """
import sys, time
from cloudtrain.platforms import get_platform
for line in get_platform("sagemaker").logs("job", follow=sys.argv[1] == "follow"):
    print(f"{time.time():.3f}", line)
"""

READ_BY_SDK_2 = """
from sagemaker.session import Session
Session().logs_for_job("job", wait=True)
"""

_LINE = re.compile(r"([\d.]+) \[(algo-\d+)\] line (\d+) printed at ([\d.]+)")


@dataclass
class Submits:
    """The costs of one contestant's runs."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)


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
        into.memory.append(int(done.stdout.split()[-1]) << 10)
        into.calls.append(len(aws.calls()))


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


def make_tree(root: Path, seed: int = 0) -> None:
    """Create files: half of the bytes are source-like text in 1,900 files, and half are random bytes in 100 files."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz_", k=rng.randint(2, 12))) for _ in range(3_000)]
    for number in range(FILES):
        folder = root / f"package{number % 40}" / f"part{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        if number < TEXT_FILES:
            (folder / f"module{number}.py").write_text(_text(rng, words, BYTES // 2 // TEXT_FILES))
        else:
            (folder / f"table{number}.bin").write_bytes(rng.randbytes(BYTES // 2 // (FILES - TEXT_FILES)))
    (root / "train.py").write_text("print('hello')\n")


def _text(rng: random.Random, words: list[str], size: int) -> str:
    lines: list[str] = []
    length = 0
    while length < size:
        line = " " * rng.choice((0, 4, 8)) + " ".join(rng.choices(words, k=rng.randint(1, 10)))
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)


def settle(root: Path) -> None:
    """Wait until the last change of the tree is a few seconds old, because most source trees have no newer changes."""
    newest = max(
        os.stat(os.path.join(folder, name)).st_ctime for folder, _, names in os.walk(root) for name in names
    )
    time.sleep(max(0.0, newest + 2.5 - time.time()))


def take_turns(
    report: Report,
    what: str,
    submitters: Mapping[str, Submitter],
    folder: Path,
    aws: Aws,
    runs: int,
    before: Callable[[int], None] = lambda turn: None,
) -> None:
    """Let each submitter have one turn, after ``before``, in each of ``runs`` rounds. An additional first round is not
    counted."""
    submits = {name: Submits() for name in submitters}
    for turn in range(runs + 1):
        for name, submitter in submitters.items():
            before(turn)
            submitter.submit(folder, aws, submits[name] if turn else Submits())
    for figure, unit, label in (
        ("seconds", "s", ""), ("cpu_seconds", "s", ": CPU"), ("calls", "calls", ": AWS calls"),
        ("memory", "B", ": memory"),
    ):  # fmt: skip
        for name, found in submits.items():
            report.add(f"{what}{label}", name, getattr(found, figure), unit)


@contextmanager
def contest(report: Report, given: argparse.Namespace) -> Iterator[tuple[dict[str, Submitter], Aws, Path]]:
    """The contestants, a new simulated AWS, and a folder with an empty source."""
    submitters = {OURS: Submitter(cloudtrain(), SUBMIT)}
    for name, number, script in ((SAGEMAKER_2, "2", SDK_2), (SAGEMAKER_3, "3", SDK_3)):
        if given.sdk in (None, number):
            with report.optional(name):
                submitters[name] = Submitter(peer(name), script)
    with running_aws() as aws, tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "source").mkdir()
        yield submitters, aws, Path(scratch)


def submit(report: Report, given: argparse.Namespace) -> None:
    with contest(report, given) as (submitters, aws, folder):
        script = folder / "source" / "train.py"

        def change(_: int) -> None:
            script.write_text(f"print({time.time_ns()})\n")

        def forget(turn: int) -> None:
            change(turn)
            shutil.rmtree(folder / "home", ignore_errors=True)

        def remove(turn: int) -> None:
            forget(turn)
            aws.remove_bucket()

        turns = {
            "submit for the first time in an account": remove,
            "submit for the first time from a machine": forget,
            "submit a script that has changed": change,
        }
        for what, before in [*turns.items()][-1 if given.quick else 0 :]:
            take_turns(report, what, submitters, folder, aws, given.runs, before)
        if not given.quick:
            settle(folder)
            take_turns(report, "submit it again", submitters, folder, aws, given.runs)


def large(report: Report, given: argparse.Namespace) -> None:
    with contest(report, given) as (submitters, aws, folder):
        source = folder / "source"
        make_tree(source)

        def change(_: int) -> None:
            (source / "train.py").write_text(f"print({time.time_ns()})\n")
            shutil.rmtree(folder / "home" / "archives", ignore_errors=True)

        runs = max(1, given.runs // 2)
        take_turns(report, "submit 2,000 files / 50 MB, first time", submitters, folder, aws, runs, change)
        settle(source)
        take_turns(report, "submit them again", submitters, folder, aws, runs)


def pack(report: Report, given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root, cache, target = Path(scratch, "source"), Path(scratch, "cache"), Path(scratch, "sdk.tar.gz")
        make_tree(root)
        settle(root)
        python = None
        with report.optional(SAGEMAKER_2):
            python = peer(SAGEMAKER_2)
        first, theirs, size = [], [], 0
        for _ in range(given.runs):
            shutil.rmtree(cache, ignore_errors=True)
            first += measure(lambda: pack_source(root, cache_dir=cache), 1)
            if python:
                command = [str(python), "-c", PACK_WITH_SDK, str(root), str(target)]
                seconds, size = subprocess.check_output(command, text=True).split()[-2:]
                theirs.append(float(seconds))
        second = measure(lambda: pack_source(root, cache_dir=cache), given.runs)
        archive = pack_source(root, cache_dir=cache)
    for when, seconds in (("first", first), ("second", second)):
        what = f"pack 2,000 files / 50 MB, {when} time"
        report.add(what, OURS, seconds, note=f"{archive.size / 1e6:.1f} MB")
        if theirs:
            report.add(what, SAGEMAKER_2, theirs, note=f"{int(size) / 1e6:.1f} MB")


def logs(report: Report, given: argparse.Namespace) -> None:
    hosts, lines, seconds = (4, 50, 2.0) if given.quick else (given.hosts, given.lines, given.seconds)
    what, wanted = f"{hosts} log streams x {lines} lines", hosts * lines
    with service(hosts, lines, 0) as endpoint:
        found, took = _read(endpoint, "once")
        report.add(f"{what}, all there", OURS, took, note=_whole(found, wanted))
    with service(hosts, lines, seconds) as endpoint:
        found, took = _read(endpoint, "follow")
        shown = f"{what} in {seconds:.0f} s, followed"
        report.add(shown, OURS, took, note=_whole(found, wanted))
        lags = sorted(read - printed for read, _, _, printed in found)
        report.add(f"{shown}: lag of a line", OURS, lags[len(lags) // 2])
        report.add(f"{shown}: lag of 95 % of the lines", OURS, lags[int(0.95 * len(lags))])
    with report.optional(SAGEMAKER_2):
        peer(SAGEMAKER_2)
        with service(hosts, lines, 0) as endpoint:
            printed, ended = _read_by_sdk_2(endpoint, given.patience)
            note = f"{printed} of {wanted} lines, {ended or 'not ended'}"
            report.add(f"{what}, all there: read", SAGEMAKER_2, printed / wanted * 100, "%", note)


@contextmanager
def service(hosts: int, lines: int, seconds: float) -> Iterator[str]:
    """The endpoint of a simulated CloudWatch. Its job prints its lines over ``seconds``, from the first request on."""
    command = [sys.executable, str(SERVICE), str(hosts), str(lines), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


Line = tuple[float, str, int, float]
"""The time it was read, its host, its number, and the time it was printed."""


def _read(endpoint: str, how: str) -> tuple[list[Line], float]:
    """The lines that cloudtrain prints, and the duration of the whole process in seconds."""
    start = time.perf_counter()
    command = [str(cloudtrain()), "-c", READ, how]
    done = subprocess.run(command, env=_client(endpoint), stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - start
    found = [_LINE.fullmatch(line) for line in done.stdout.splitlines()]
    return [(float(line[1]), line[2], int(line[3]), float(line[4])) for line in found if line], seconds


def _read_by_sdk_2(endpoint: str, patience: float) -> tuple[int, str]:
    """The number of lines that the SDK prints, and how it ended; empty if it had to be stopped."""
    command = [str(peer(SAGEMAKER_2)), "-c", READ_BY_SDK_2]
    with tempfile.TemporaryDirectory() as scratch:
        env = {**_client(endpoint), **without_telemetry(Path(scratch))}
        return _printed(command, env, patience)


def _printed(command: Sequence[str], env: Mapping[str, str], patience: float) -> tuple[int, str]:
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as sdk:
        try:
            said, _ = sdk.communicate(timeout=patience)
            ended = f"ended with status {sdk.returncode}"
        except subprocess.TimeoutExpired:
            sdk.kill()
            said, _ = sdk.communicate()
            ended = ""
    return said.count(" printed at "), ended


def _client(endpoint: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **ours,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": REGION,
    }


def _whole(lines: list[Line], wanted: int) -> str:
    """The number of distinct lines, and of lines that follow a line that was printed later."""
    different = len({(host, number) for _, host, number, _ in lines})
    printed = [line[3] for line in lines]
    late = sum(later < earlier for earlier, later in pairwise(printed))
    numbers: dict[str, list[int]] = {}
    for _, host, number, _ in lines:
        numbers.setdefault(host, []).append(number)
    in_order = all(found == sorted(found) for found in numbers.values())
    order = "in order on every host" if in_order else "NOT in order"
    return f"{different} of {wanted} lines, {order}, {late} steps back between hosts"


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"pack": pack, "submit": submit, "large": large, "logs": logs},
        options=(
            ("--sdk", None), ("--hosts", 200), ("--lines", 1000), ("--seconds", 60.0), ("--patience", 60.0),
        ),
    )  # fmt: skip
