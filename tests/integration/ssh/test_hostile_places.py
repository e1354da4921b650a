"""Folders below one in which all users may write, such as ``/tmp``: another user was there first.

Every root of jobs and state refuses the place, and puts nothing there.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from login_node import ALIAS, NewNode
from unprivileged import NOBODY

from cloudtrain import Estimator
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.secret import private_folder
from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms.batch.cluster import local_cluster, open_cluster
from cloudtrain.platforms.batch.control import socket_folder
from cloudtrain.runtime.start.node_folder import local_folder
from cloudtrain.runtime.supervisor.folder import jobs_home
from cloudtrain.storage import state_home

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of others")

JOB = "a-job"


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = tmp_path_factory.mktemp("source") / "train.py"
    script.write_text("pass")
    return script


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like ``/tmp``."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def foreign(folder: Path) -> Path:
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o777)
    return folder


def at_the_place(shared: Path) -> Path:
    return foreign(shared / "place")


def above_it(shared: Path) -> Path:
    folder = foreign(shared / "theirs") / "place"
    folder.mkdir(mode=0o700)
    return folder


def a_link(shared: Path) -> Path:
    (shared / "mine").mkdir(mode=0o700)
    link = shared / "place"
    link.symlink_to(shared / "mine")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    return link


def open_to_all(shared: Path) -> Path:
    folder = shared / "open" / "place"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o777)
    return folder


def by_an_acl(shared: Path) -> Path:
    """Its mode shows only that root's group may write."""
    folder = shared / "granted" / "place"
    folder.mkdir(parents=True, mode=0o700)
    no_one = 0xFFFFFFFF
    entries = ((1, 7, no_one), (2, 7, NOBODY), (4, 0, no_one), (16, 7, no_one), (32, 0, no_one))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(folder.parent, "system.posix_acl_access", acl)
    return folder


def inside(shared: Path) -> Path:
    """A folder of the user, in which another one has found a moment."""
    folder = shared / "place"
    folder.mkdir(mode=0o700)
    for name in ("jobs", "runtime", JOB, "state", f"cloudtrain-{os.getuid()}"):
        foreign(folder / name)
    return folder


ATTACKS = [at_the_place, above_it, a_link, open_to_all, by_an_acl, inside]


def state(place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CLOUDTRAIN_HOME", str(place))
    state_home()


def state_inside(place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CLOUDTRAIN_HOME", str(place / "state"))
    jobs_home("local")


def sockets(place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CLOUDTRAIN_HOME", str(place / "state"))
    socket_folder()


def ranks(place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tempfile, "tempdir", str(place))
    private_folder()


def slurm(place: Path, patch: pytest.MonkeyPatch) -> None:
    local_cluster("slurm", str(place)).root.create(JOB)


def runtime(place: Path, patch: pytest.MonkeyPatch) -> None:
    cluster = local_cluster("pbs", str(place))
    cluster.root.provide(cluster.runtime_file("00ff"), lambda: b"code")


def slurm_by_ssh(place: Path, patch: pytest.MonkeyPatch) -> None:
    open_cluster("slurm", ALIAS, str(place), "sh").root.create(JOB)


def runtime_by_ssh(place: Path, patch: pytest.MonkeyPatch) -> None:
    cluster = open_cluster("slurm", ALIAS, str(place), "sh")
    cluster.root.provide(cluster.runtime_file("00ff"), lambda: b"code")


def listed_by_ssh(place: Path, patch: pytest.MonkeyPatch) -> None:
    (place / "jobs" / "slurm").mkdir(parents=True, exist_ok=True)
    list(open_cluster("slurm", ALIAS, str(place), "sh").root.names())


def node_disk(place: Path, patch: pytest.MonkeyPatch) -> None:
    with local_folder(str(place / "state")):
        pass


LOCAL_ROOTS = [state, state_inside, sockets, ranks, slurm, runtime, node_disk]
ROOTS = [*LOCAL_ROOTS, slurm_by_ssh, runtime_by_ssh, listed_by_ssh]


def content(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if "by_ssh" not in str(path))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_no_root_is_where_another_user_could_put_code(
    shared: Path, attack: Callable[[Path], Path], new_node: NewNode
) -> None:
    new_node()
    place = attack(shared)
    accepted = []
    for root in ROOTS:
        if root is state and attack is inside:  # its own content is checked by what uses it
            continue
        before = set(content(shared))
        try:
            with pytest.MonkeyPatch.context() as patch:
                root(place, patch)
            accepted.append(root.__name__)
        except (CloudtrainError, CollectiveError) as error:
            assert "another user" in str(error) or "other users" in str(error), f"{root.__name__}: {error}"
        new = set(content(shared)) - before
        assert root is listed_by_ssh or all(os.lstat(path).st_uid == 0 for path in new)
    assert accepted == []


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
@pytest.mark.parametrize("end", ["folder", "state"])
def test_no_host_runs_code_of_another_user(
    shared: Path, attack: Callable[[Path], Path], end: str, new_node: NewNode, submitted: Path
) -> None:
    place = attack(shared)
    new_node(environ={"CLOUDTRAIN_HOME": str(place / "state")} if end == "state" else {})
    options = {"hosts": [ALIAS], **({"folder": str(place)} if end == "folder" else {})}
    with pytest.raises(CloudtrainError) as caught:
        Estimator(str(submitted), platform="hosts", platform_options=options).fit(job_name=JOB)
    assert "another user" in str(caught.value) or "other users" in str(caught.value)
