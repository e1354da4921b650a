"""A script with the traits of public scripts runs unchanged, on two hosts, with data in S3."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command import cloudtrain
from warm_python import WITHOUT_COMPILER

from cloudtrain.storage import open_store
from cloudtrain.testing import S3Server

TRAITS = Path(__file__).with_name("traits")
FOLDER = "   examples/two hosts"
"""A folder with leading spaces, as in AWS's repository of examples, and with one inside."""
TYPED = [
    "config.py",
    "trainer.epochs=1",
    "-vv",
    "--save-model",
    "--layers",
    "3",
    "4",
    "--tag",
    "b",
    "--tag=a",
]

pytest.importorskip("torch")
pytestmark = pytest.mark.xdist_group("public-script-traits")


@dataclass(frozen=True)
class Launch:
    """The output of the command, and the results of the job: the files in its archives, and each host's report."""

    printed: str
    files: set[str]
    reports: dict[str, Any]


@pytest.fixture(scope="module")
def launch(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    folder = tmp_path_factory.mktemp("traits")
    shutil.copytree(TRAITS, folder / FOLDER)
    with open(folder / FOLDER / "model_def.py", "a") as module:
        module.write(f"\n{WITHOUT_COMPILER}\n")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **s3_server.env,
            "CLOUDTRAIN_HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder),
        }.items():
            patch.setenv(name, value)
        s3_server.create_bucket("traits")
        store = open_store("s3://traits/data")
        store.write(
            "train.csv.gz", gzip.compress(b"".join(b"%d,%d\n" % (x % 4, x % 4 + 1) for x in range(16)))
        )
        store.write("test/lines.txt", b"one\ntwo\n")
        inputs = ["--input", "train=s3://traits/data", "--input", "test=s3://traits/data/test"]
        options = ["--source-dir", FOLDER, "--name", "traits", "--instance-count", "2", *inputs]
        script = ["--", *TYPED, "--test-file", "{channel.test}/lines.txt"]
        printed = _cloudtrain(folder, "submit", f"{FOLDER}/train.py", *options, *script)
        _cloudtrain(folder, "download", "traits", "--to", "results")
    files = {}
    for archive in (folder / "results").glob("*.tar.gz"):
        with tarfile.open(archive) as opened:
            members = [member for member in opened.getmembers() if member.isfile()]
            files |= {member.name.removeprefix("./"): opened.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    yield Launch(
        printed, set(files), {name: json.loads(files[f"{name}.json"]) for name in ("algo-1", "algo-2")}
    )


def _cloudtrain(folder: Path, *arguments: str) -> str:
    done = cloudtrain(*arguments, cwd=folder, timeout=200)
    assert done.code == 0, done.out + done.err
    return done.out


@pytest.mark.parametrize("host", ["algo-1", "algo-2"])
def test_the_script_gets_the_line_as_typed_with_the_path_of_the_channel(launch: Launch, host: str) -> None:
    *typed, option, path = launch.reports[host]["argv"]
    assert [*typed, option] == [*TYPED, "--test-file"]
    assert path.endswith("/lines.txt")
    assert launch.reports[host]["test lines"] == 2


@pytest.mark.parametrize("host", ["algo-1", "algo-2"])
def test_no_launcher_variables_without_distribution(launch: Launch, host: str) -> None:
    assert launch.reports[host]["launcher variables"] == []


def test_two_hosts_find_each_other_and_train_together(launch: Launch) -> None:
    assert launch.reports["algo-1"]["weights"] == launch.reports["algo-2"]["weights"]
    assert "step 3: loss=" in launch.printed


def test_the_results_of_both_hosts_are_downloaded(launch: Launch) -> None:
    assert launch.files >= {"model.pth", "code/train.py", "algo-1.json", "algo-2.json"}
