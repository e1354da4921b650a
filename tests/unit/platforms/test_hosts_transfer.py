"""The files of a job on hosts: which are sent, and which may come back; and the answers of hosts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cloudtrain._system.interfaces import interface_to, own_addresses
from cloudtrain.contract import Paths, Settings
from cloudtrain.errors import PlatformError, StorageError
from cloudtrain.platforms.hosts.host_list import parse_hosts
from cloudtrain.platforms.hosts.probe import Answers, Question, _find_leader
from cloudtrain.platforms.hosts.transfer import MOST_SENT, Arrivals, check_size, plan_inputs
from cloudtrain.runtime.start.messages import Facts, File, fingerprint

BLIND = Facts()
"""A host that sees nothing of this machine."""


def _settings(folder: Path) -> Settings:
    (folder / "data").mkdir()
    (folder / "data/a.txt").write_text("a")
    channels = (("train", (folder / "data").as_uri()), ("test", "s3://bucket/test"))
    return Settings(channels=channels, checkpoint_uri=(folder / "checkpoints").as_uri())


def test_a_channel_is_sent_unless_the_host_sees_it(tmp_path: Path) -> None:
    settings, data = _settings(tmp_path), tmp_path / "data"
    s3 = ("test", "s3://bucket/test")
    archive = tmp_path / "sourcedir.tar.gz"
    blind = plan_inputs(settings, BLIND, "", archive)
    assert blind.send == {"input/data/code/sourcedir.tar.gz": archive, "sent/train": data}
    assert blind.channels == (("train", "file://{base}/sent/train"), s3)
    assert blind.checkpoint_uri == "file://{base}/sent-checkpoints"
    seeing = plan_inputs(settings, Facts(fingerprints={str(data): fingerprint(str(data))}), "", None)
    assert (seeing.send, seeing.channels) == ({}, (("train", data.as_uri()), s3))
    shared = plan_inputs(settings, BLIND, str(tmp_path), None)
    assert (shared.send, shared.checkpoint_uri) == ({}, (tmp_path / "checkpoints").as_uri())


def test_the_same_path_with_other_files_is_not_the_same(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(name)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")  # keeps the times
    assert fingerprint(str(tmp_path / "a")) == fingerprint(str(tmp_path / "copy"))
    (tmp_path / "copy/y.txt").touch()
    assert fingerprint(str(tmp_path / "a")) != fingerprint(str(tmp_path / "copy"))
    assert fingerprint(str(tmp_path / "nowhere")) == ""


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir()
        for other in ("..", "../a", "../b"):
            (tmp_path / "data" / name / f"to{other.replace('/', '-')}").symlink_to(other)
    (tmp_path / "data/here").symlink_to(".")
    check_size(settings, BLIND, "n1", "")  # without a limit, 2 ** 40 folders


def test_a_large_channel_is_refused(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    check_size(settings, BLIND, "n1", "")
    with (tmp_path / "data/large.bin").open("wb") as file:
        file.truncate(MOST_SENT)  # a hole
    with pytest.raises(PlatformError, match=r"channel 'train': .* too much to send to n1") as caught:
        check_size(settings, BLIND, "n1", "")
    assert "platform_options.folder" in caught.value.hint
    check_size(settings, BLIND, "n1", str(tmp_path))


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "/etc/passwd",
        "model/../../x",
        "input/config/secret",
        "sent-checkpoints/x",
        "model//x",
        "output/data",
        "output/failure.json",
    ],
)
def test_a_host_cannot_write_elsewhere(path: str, tmp_path: Path) -> None:
    paths = Paths(tmp_path / "host")
    arrivals = Arrivals(paths, None)
    with pytest.raises((ValueError, OSError, StorageError)):
        arrivals.begin(File(path, 0o644))
    assert not list(tmp_path.rglob("*"))


def test_files_are_copied_back(tmp_path: Path) -> None:
    arrivals = Arrivals(Paths(tmp_path / "host"), tmp_path / "checkpoints")
    for path in ("model/a/b.bin", "model/\udcff", "sent-checkpoints/7/manifest.json"):
        arrivals.begin(File(path, 0o4777))
        arrivals.add(b"1")
        arrivals.add(b"2")
    arrivals.close()
    assert (tmp_path / "checkpoints/7/manifest.json").read_bytes() == b"12"
    assert (tmp_path / "host/model/a/b.bin").stat().st_mode & 0o7777 == 0o755


def test_clocks_that_differ() -> None:
    found = Answers(skews={"n1": 0.4, "n2": 7.0, "n3": -3600.0})
    assert [problem.what for problem in found.warnings()] == [
        "the clock of n2 is 7 s ahead of this machine's",
        "the clock of n3 is 3600 s behind this machine's",
    ]


def _leader(hosts: str, facts: Mapping[str, Mapping[str, Any]]) -> str:
    found = Answers(facts={name: Facts(**values) for name, values in facts.items()})
    problem = _find_leader(Question(parse_hosts(hosts), ["ssh"], "python3"), found)
    return problem[1].what if problem else found.address


def test_the_leader_is_one_for_all() -> None:
    own = {"addresses": ["10.0.0.1", "192.168.0.1"], "leader": []}
    near, far = {"leader": ["192.168.0.1", "10.0.0.1"]}, {"leader": ["10.0.0.1"]}
    assert _leader("a,b,c", {"a": own, "b": near, "c": far}) == "10.0.0.1"
    other = {"leader": ["192.168.0.1"]}
    assert _leader("a,b,c", {"a": own, "b": far, "c": other}) == (
        "c reaches a only at 192.168.0.1, which the other hosts do not use"
    )
    stale = {"leader": ["10.0.0.9"]}
    assert _leader("a,b", {"a": own, "b": stale}) == (
        "b takes a for 10.0.0.9, but a itself has 10.0.0.1, 192.168.0.1"
    )
    assert "b cannot resolve the name a" in _leader("a,b", {"a": own, "b": {"leader": []}})


def test_the_interface_of_a_route() -> None:
    assert interface_to("127.0.0.1") == "lo"
    assert interface_to("not an address") == ""
    for address in own_addresses():
        assert not address.startswith("127.")
