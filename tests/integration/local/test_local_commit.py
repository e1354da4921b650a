"""A checkpoint records the commit of the source."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from local_jobs import TWO_RANKS, Run, folder, write

from cloudtrain import Job
from cloudtrain.checkpoint.inspect import find
from cloudtrain.cli import cli
from cloudtrain.storage import open_store

SCRIPT = """
    from cloudtrain.checkpoint import Checkpointer

    Checkpointer().save(1, {"weights": [1.0]})
"""


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=me", "-c", "user.email=me@here", *arguments]
    done = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit_in_manifest(job: Job) -> str | None:
    uri = job.describe().checkpoint_uri
    assert uri, job.logs()
    manifest = find(open_store(uri)).manifest
    assert manifest is not None
    return manifest.git_commit


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a script, inside a repository."""
    repository = tmp_path / "repository"
    source = write(repository / "training", "train.py", SCRIPT)
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "first")
    return source


def test_a_clean_tree(run: Run, source: Path) -> None:
    commit = git(source, "rev-parse", "HEAD")
    job = run(source, distribution=TWO_RANKS)
    assert commit_in_manifest(job) == job.describe().git_commit == commit
    assert f"commit        {commit}\n" in CliRunner().invoke(cli, ["describe", job.name]).output


def test_a_tree_with_changes(run: Run, source: Path) -> None:
    (source / "new.py").touch()
    job = run(source)
    assert commit_in_manifest(job) == job.describe().git_commit == f"{git(source, 'rev-parse', 'HEAD')}-dirty"


def test_without_a_repository(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTRAIN_GIT_COMMIT", "that of another job")
    job = run(SCRIPT)
    assert commit_in_manifest(job) is job.describe().git_commit is None
    assert folder(job).read_request()["environment"].get("CLOUDTRAIN_GIT_COMMIT") is None
