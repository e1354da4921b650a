"""Runs the cells of one notebook against moto, and compares each with the list."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import yaml
from moto.server import ThreadedMotoServer
from notebook_list import Notebook

sys.path.insert(0, str(Path(__file__).parents[2]))

from parity.deviations import JOB, correct, differences, normalise

HERE = Path(__file__).parent
MAKE_DATA = HERE / "notebook_data.py"
REPOSITORY = HERE.parents[2]

ROLE = "arn:aws:iam::123456789012:role/service-role/AmazonSageMaker-ExecutionRole"
REGION = "us-east-1"

CHANGES = ("apt", "apt-get", "conda", "docker", "pip", "pip3", "service", "sm-docker", "sudo", "yum")
"""Programs that would change the machine, or build and push an image: they only print their command."""

STUBS = {
    **{program: f"echo left out: {program} $@" for program in CHANGES},
    "aws": f'exec {sys.executable} {HERE / "aws_cp.py"} "$@"',
}
"""Programs of a notebook's machine, which cells call."""


@dataclass
class Outcome:
    """The outcome of the cells of one notebook: by number, the error (None without one) and what was printed."""

    errors: dict[int, str | None] = field(default_factory=dict)
    printed: dict[int, str] = field(default_factory=dict)
    jobs: int = 0
    """Training jobs and tuning jobs that SageMaker has afterwards."""
    requests: dict[int, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    """The operations and the parameters of each cell that sends jobs."""
    log: str = ""

    def differences(self, notebook: Notebook, *, local: bool) -> list[str]:
        """One line for each cell that did something else than the list says."""
        found = [f"cell {cell} was not reached" for cell in self._expected(notebook) - self.errors.keys()]
        for cell, error in self.errors.items():
            wanted = notebook.fails.get(cell)
            if error is None and wanted is not None:
                found.append(f"cell {cell} succeeded; listed: {wanted}")
            elif error is not None and (wanted is None or wanted not in error):
                found.append(f"cell {cell}: {error}")
        jobs = 0 if local else notebook.jobs
        if self.jobs != jobs:
            found.append(f"{self.jobs} jobs were sent to SageMaker; listed: {jobs}")
        return found

    def unlike(self, sdk: Outcome) -> list[str]:
        """One line for each field of a request that the SDK sends otherwise."""
        found = []
        for cell in sorted({*self.requests, *sdk.requests}):
            ours, theirs = self.requests.get(cell, []), sdk.requests.get(cell, [])
            if [name for name, _ in ours] != [name for name, _ in theirs]:
                found.append(f"cell {cell}: {len(ours)} requests; the SDK sends {len(theirs)}")
                continue
            for (name, own), (_, other) in zip(ours, theirs, strict=True):
                own, other = normalise(own), normalise(other)
                if name == JOB:
                    other, _ = correct(other, own)
                found += [f"cell {cell}: {name} {line}" for line in differences(other, own)]
        return found

    def _expected(self, notebook: Notebook) -> set[int]:
        return set(range(1, notebook.cells + 1)) - notebook.left_out.keys()


class Workplace:
    """An AWS account in moto, and a home folder, for one notebook."""

    def __init__(self, python: str = sys.executable, sdk: str | None = None) -> None:
        self.python, self.sdk = python, sdk

    def __enter__(self) -> Workplace:
        with ExitStack() as stack:
            self.work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nb-")))
            logging.getLogger("werkzeug").setLevel(logging.ERROR)
            server = ThreadedMotoServer(port=0, verbose=False)
            server.start()
            stack.callback(server.stop)
            host, port = server.get_host_and_port()
            self.endpoint = f"http://{host}:{port}"
            stub = self.work / "bin"
            stub.mkdir()
            for name, script in STUBS.items():
                (stub / name).write_text(f"#!/bin/sh\n{script}\n")
                (stub / name).chmod(0o755)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self,
        notebook: Notebook,
        path: Path,
        files: Path,
        *,
        local: bool = False,
        job_python: str = "",
        by_sdk: bool = False,
    ) -> Outcome:
        """Run the cells of the notebook at ``path`` in a copy of ``files``, the folder with its script.

        Args:
            local: run its jobs on `local` instead of sending them to SageMaker.
            job_python: the interpreter of jobs on `local`; defaults to this one.
            by_sdk: run the cells unchanged, with the SageMaker SDK.
        """
        self._new_account(notebook)
        folder = Path(tempfile.mkdtemp(dir=self.work))
        shutil.copytree(files, folder, symlinks=True, dirs_exist_ok=True)
        shutil.copyfile(path, folder / path.name)
        for name, maker in notebook.files.items():
            self._make(maker, folder / name)
        config: dict[str, Any] = {"role": ROLE}
        if local:
            config["platform"] = "local"
            if job_python:
                config["platform_options"] = {"python": job_python}
        (self.work / "config.yaml").write_text(yaml.safe_dump(config))
        results = self.work / "results.jsonl"
        results.unlink(missing_ok=True)
        left_out = ",".join(map(str, notebook.left_out))
        command = [
            self.sdk if by_sdk else self.python,
            HERE / "cells.py",
            "sagemaker" if by_sdk else "cloudtrain",
            folder / path.name,
            results,
            *([left_out] if left_out else []),
        ]
        with (self.work / "log").open("w") as log:
            try:
                subprocess.run(
                    command,
                    cwd=folder,
                    env={**self._environment(), **notebook.environment},
                    stdout=log,
                    stderr=log,
                    timeout=notebook.timeout,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                print(f"{notebook.name}: longer than {notebook.timeout} s", file=sys.stderr)
        outcome = Outcome(jobs=self._jobs(), log=(self.work / "log").read_text()[-2000:])
        for line in results.read_text().splitlines() if results.exists() else ():
            cell = json.loads(line)
            outcome.errors[cell["cell"]] = cell["error"]
            outcome.printed[cell["cell"]] = cell["printed"]
            if cell["requests"]:
                outcome.requests[cell["cell"]] = cell["requests"]
        return outcome

    def _environment(self) -> dict[str, str]:
        mine = {
            key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "CLOUDTRAIN_"))
        }
        return {
            **mine,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CLOUDTRAIN_RUNTIME": "toolkit" if self.sdk else "",
            "CLOUDTRAIN_CONFIG": str(self.work / "config.yaml"),
            "CLOUDTRAIN_HOME": str(self.work / "home" / "cloudtrain"),
            "HF_HUB_OFFLINE": "1",
            "HOME": str(self.work / "home"),
            "IPYTHONDIR": str(self.work / "home" / "ipython"),
            "MPLBACKEND": "agg",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{self.work / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "XDG_STATE_HOME": str(self.work / "home" / "state"),
        }

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    def _new_account(self, notebook: Notebook) -> None:
        import urllib.request

        urllib.request.urlopen(f"{self.endpoint}/moto-api/reset", data=b"", timeout=60).close()
        s3 = self._client("s3")
        for uri, maker in notebook.objects.items():
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            s3.create_bucket(Bucket=bucket)
            made = self.work / "data" / maker
            self._make(maker, made)
            files = [path for path in made.rglob("*") if path.is_file()]
            for file in files:
                name = f"{key}/{file.relative_to(made).as_posix()}" if len(files) > 1 else key
                s3.upload_file(str(file), bucket, name)

    def _make(self, maker: str, folder: Path) -> None:
        if folder.exists():
            return
        folder.mkdir(parents=True)
        subprocess.run([self.python, MAKE_DATA, maker, folder], check=True, timeout=300)

    def _jobs(self) -> int:
        client = self._client("sagemaker")
        trained = client.list_training_jobs(MaxResults=100)["TrainingJobSummaries"]
        tuned = client.list_hyper_parameter_tuning_jobs(MaxResults=100)["HyperParameterTuningJobSummaries"]
        return len(trained) + len(tuned)
