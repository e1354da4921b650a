"""How a host finds the job secret, and what remains of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.contract import Paths
from cloudtrain.errors import InvalidJob
from cloudtrain.link.secret import derive, fresh_secret, ranks_secret, write_ranks_secret
from cloudtrain.runtime.job_secret import take_secret

SECRET = fresh_secret()


def test_a_secret_in_the_environment_is_taken_out_of_it(tmp_path: Path) -> None:
    environ = {"CLOUDTRAIN_SECRET": SECRET, "A": "b"}
    assert take_secret(Paths(tmp_path), environ, 2) == SECRET
    assert environ == {"A": "b"}


@pytest.mark.parametrize("place", ["input/config", "input/data/cloudtrain-secret"])
def test_a_secret_in_a_file_is_removed(tmp_path: Path, place: str) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "secret").write_text(f"{SECRET}\n")
    assert take_secret(Paths(tmp_path), {}, 2) == SECRET
    assert not [path for path in tmp_path.rglob("*") if "secret" in path.name]


def test_a_single_host_makes_its_own(tmp_path: Path) -> None:
    made = {take_secret(Paths(tmp_path), {"CLOUDTRAIN_SECRET": SECRET}, 1) for _ in range(2)}
    assert len(made) == 2
    assert SECRET not in made


@pytest.mark.parametrize(
    ("secret", "what"), [("", "is missing"), ("tiny", "is shorter than 32"), ("é" * 40, "is not all ASCII")]
)
def test_several_hosts_need_one(tmp_path: Path, secret: str, what: str) -> None:
    with pytest.raises(InvalidJob, match=f"its 2 hosts share, {what}|{what}") as caught:
        take_secret(Paths(tmp_path), {"CLOUDTRAIN_SECRET": secret}, 2)
    assert "CLOUDTRAIN_SECRET" in caught.value.hint
    assert not secret or secret not in str(caught.value)


def test_the_ranks_have_only_their_own_secret(tmp_path: Path) -> None:
    write_ranks_secret(tmp_path, derive(SECRET, "ranks", 3).hex())
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert ranks_secret({"CLOUDTRAIN_RUN_DIR": str(tmp_path)}) == derive(SECRET, "ranks", 3).hex()
