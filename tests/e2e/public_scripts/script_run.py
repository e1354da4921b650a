"""Runs one script of the list and compares what it printed and left with what the list says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from script_list import Script

from cloudtrain.storage import open_store
from cloudtrain.testing import S3Server

MAKE_DATA = Path(__file__).with_name("make_data.py")


@dataclass(frozen=True)
class Result:
    """How a script's run compares with the list: `as listed`, `differs` or `left out`, and why."""

    script: Script
    verdict: str
    why: str = ""
    seconds: float = 0.0


class Workplace:
    """The S3 server, the data and the state of cloudtrain for one run of the list."""

    def __init__(self, checkouts: Path, pythons: dict[str, str], work: Path | None) -> None:
        self.checkouts = checkouts
        self.pythons = {"torch": sys.executable, **pythons}
        self._work = work

    def __enter__(self) -> Workplace:
        with ExitStack() as stack:
            if self._work:
                self._work.mkdir(parents=True, exist_ok=True)
                self.work = Path(tempfile.mkdtemp(prefix="run-", dir=self._work)).resolve()
            else:
                self.work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.home = self.work / "home"
            self.home.mkdir()
            server = stack.enter_context(S3Server())
            server.create_bucket("data")
            os.environ.update(server.env)
            self._environment = {
                **os.environ,
                "HOME": str(self.home),
                "CLOUDTRAIN_HOME": str(self.home / "cloudtrain"),
                "XDG_CONFIG_HOME": str(self.home / "config"),
                "HF_HUB_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
            }
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, script: Script) -> Result:
        """Run the script, wait for its end, download its results."""
        if script.python not in self.pythons:
            return Result(script, "left out", f"needs --python {script.python}=PATH")
        checkout = self.checkouts / script.repository.folder
        if not (checkout / script.path).exists():
            return Result(script, "left out", f"there is no {checkout / script.path}")
        try:
            for name in script.data:
                self._make_data(script, name, self.work / "data" / name, upload=True)
            if script.home:
                self._make_data(script, script.home, self.home, upload=False)
        except subprocess.CalledProcessError as error:
            return Result(script, "differs", f"its data could not be made: {error}")
        started = time.monotonic()
        try:
            done = self._call(*self._launch(script), cwd=checkout, timeout=script.timeout)
        except subprocess.TimeoutExpired:
            if script.submitted:
                self._call("stop", script.name, cwd=checkout, timeout=180)
            return Result(script, "differs", f"it ran longer than {script.timeout} s", script.timeout)
        printed = done.stdout + done.stderr
        (self.work / f"{script.name}.log").write_text(printed)
        why = self._compare(script, done.returncode, printed)
        return Result(script, "differs" if why else "as listed", why, time.monotonic() - started)

    def _launch(self, script: Script) -> list[str]:
        python = self.pythons[script.python]
        if not script.submitted:
            return [python if word == "python" else word for word in script.command_line]
        submit, path, *words = script.command_line
        options = ["--name", script.name, "--output-path", "s3://data/jobs"]
        if python != sys.executable:
            options += ["--set", f"platform_options.python={python}"]
        return [submit, path, *options, *words]

    def _compare(self, script: Script, status: int, printed: str) -> str:
        if status != script.exit_status:
            return f"exit status {status}, listed: {script.exit_status}"
        if script.error not in printed:
            return f"it did not print {script.error!r}"
        for pattern in script.prints:
            if not re.search(pattern, printed):
                return f"it did not print {pattern!r}"
        if script.model or script.output:
            left = self._download(script)
            for name in (*script.model, *script.output):
                if not any(path == name or path.startswith(f"{name}/") for path in left):
                    return f"it left no {name}: {', '.join(sorted(left)[:10]) or 'nothing'}"
        return ""

    def _download(self, script: Script) -> set[str]:
        """The names in the archives of the model and of the output data."""
        with tempfile.TemporaryDirectory() as folder:
            self._call("download", script.name, "--to", folder, cwd=Path(folder), timeout=120)
            names = set()
            for archive in Path(folder).glob("*.tar.gz"):
                listing = subprocess.run(["tar", "-tzf", archive], capture_output=True, text=True, check=True)
                names |= {line.removeprefix("./").rstrip("/") for line in listing.stdout.splitlines()}
            return names

    def _make_data(self, script: Script, name: str, folder: Path, *, upload: bool) -> None:
        if upload and folder.exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        command = [self.pythons[script.python], MAKE_DATA, name, folder]
        subprocess.run(command, env=self._environment, check=True, timeout=300)
        if upload:
            store = open_store(f"s3://data/{name}")
            for path in folder.rglob("*"):
                if path.is_file():
                    store.write(path.relative_to(folder).as_posix(), path.read_bytes())

    def _call(self, *words: str, cwd: Path, timeout: float) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cloudtrain", *words]
        return subprocess.run(
            command,
            cwd=cwd,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            errors="replace",
        )


def report(result: Result) -> Result:
    """Print one line of the table of a run."""
    print(f"{result.script.name:42} {result.verdict:10} {result.seconds:6.1f} s  {result.why}", flush=True)
    return result
