"""The outputs of several hosts become one result, through a store and without a common folder."""

from __future__ import annotations

import inspect
import io
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import Paths, Settings
from cloudtrain.errors import NotFound
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.outputs.merge import Merge, differing_message, to_ranges
from cloudtrain.runtime.outputs.output_files import list_outputs
from cloudtrain.runtime.outputs.unsupported_outputs import Skipped
from cloudtrain.runtime.outputs.upload import HostOutputs, Results, remove_parts, upload_outputs
from cloudtrain.storage import open_store

HOSTS = ("algo-1", "algo-2")


def silent(count: int) -> None:
    pass


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., list[HostConfig]]:
    """Creates hosts with the given files in their folders, in place of those that they had."""

    def make(
        files: Mapping[str, Mapping[str, str]], hosts: tuple[str, ...] = HOSTS, **settings: Any
    ) -> list[HostConfig]:
        given = Settings(**{"output_uri": (tmp_path / "out").as_uri(), **settings})
        configs = []
        for host in hosts:
            paths = Paths(tmp_path / host)
            shutil.rmtree(paths.base, ignore_errors=True)
            paths.make()
            document = {"current_host": host, "hosts": list(hosts)}
            (paths.input_config / "resourceconfig.json").write_text(json.dumps(document))
            for name, text in files.get(host, {}).items():
                (paths.base / name).parent.mkdir(parents=True, exist_ok=True)
                (paths.base / name).write_text(text)
            configs.append(HostConfig.read(paths, given.to_environ()))
        return configs

    return make


def list_and_share(configs: list[HostConfig]) -> tuple[Merge, list[HostOutputs]]:
    """The first two steps of every host, with the leader's decisions between them."""
    merge = Merge(config.host.current for config in configs)
    outputs = [HostOutputs(config) for config in configs]

    def take(config: HostConfig, messages: Any) -> None:
        for message in json.loads(json.dumps(list(messages))):
            add = merge.add_files if message["type"] == "files" else merge.add_digests
            add(config.host.current, message[message["type"]])

    for config, part in zip(configs, outputs, strict=True):
        take(config, part.list())
    shares = merge.plan()
    for config, part in zip(configs, outputs, strict=True):
        share = shares[config.host.current]
        message = {"give": to_ranges(share.give), "compare": to_ranges(share.compare), "parts": "token"}
        take(config, part.share(message, silent))
    return merge, outputs


def upload_apart(configs: list[HostConfig]) -> Results:
    merge, outputs = list_and_share(configs)
    differing = merge.differing()
    warnings = [differing_message(differing, HOSTS[0])] if differing else []
    message = {"givers": merge.givers(), "warnings": warnings}
    leader, *_ = [part.assemble(message, silent) for part in outputs]
    return leader


def upload_together(configs: list[HostConfig]) -> Results:
    return upload_outputs(configs, silent)


@pytest.fixture(params=[upload_apart, upload_together])
def upload(request: pytest.FixtureRequest) -> Callable[[list[HostConfig]], Results]:
    """Uploads the outputs of hosts that share nothing, or of hosts on one machine."""
    function: Callable[[list[HostConfig]], Results] = request.param
    return function


def stored(tmp_path: Path) -> dict[str, Any]:
    """Everything at the output URI; archives as a list of names and contents."""
    found: dict[str, Any] = {}
    for entry in open_store((tmp_path / "out").as_uri()).list():
        data = open_store((tmp_path / "out").as_uri()).read(entry.key)
        found[entry.key] = unpacked(data) if entry.key.endswith(".tar.gz") else data.decode()
    return found


def unpacked(data: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {
            member.name: (archive.extractfile(member) or io.BytesIO()).read().decode()
            if member.isreg()
            else member.linkname or "/"
            for member in archive
        }


CLASHING = {
    "algo-1": {"model/weights": "leader", "model/d/1": "1", "output/data/log": "one"},
    "algo-2": {"model/weights": "other!", "model/d/2": "2", "output/data/log": "two longer"},
}


def test_all_files_are_in_one_archive_and_the_leader_wins(
    configure: Any, upload: Any, tmp_path: Path
) -> None:
    results = upload(configure(CLASHING))
    out = (tmp_path / "out").as_uri()
    assert results.uploaded == {"model": f"{out}/model.tar.gz", "output": f"{out}/output.tar.gz"}
    assert stored(tmp_path) == {
        "model.tar.gz": {"d": "/", "d/1": "1", "weights": "leader", "d/2": "2"},
        "output.tar.gz": {"log": "one"},
    }
    [warning] = results.warnings
    assert warning.startswith("model/weights, output/data/log differ between hosts: ")


def test_uncompressed_outputs_are_merged_too(configure: Any, upload: Any, tmp_path: Path) -> None:
    results = upload(configure(CLASHING, compress_output=False))
    assert results.uploaded["model"] == f"{(tmp_path / 'out').as_uri()}/model"
    assert stored(tmp_path) == {
        "model/weights": "leader",
        "model/d/1": "1",
        "model/d/2": "2",
        "output/log": "one",
    }
    assert results.warnings


def test_a_model_that_only_a_follower_has(configure: Any, upload: Any, tmp_path: Path) -> None:
    assert upload(configure({"algo-2": {"model/weights": "w"}})).uploaded.keys() == {"model"}
    assert stored(tmp_path) == {"model.tar.gz": {"weights": "w"}}


def test_equal_files_are_not_warned_about(configure: Any, upload: Any) -> None:
    same = {"model/weights": "same", "model/d/x": "same"}
    results = upload(configure({"algo-1": same, "algo-2": same}))
    assert results.warnings == []


def test_links_and_empty_folders_are_kept(configure: Any, upload: Any, tmp_path: Path) -> None:
    configs = configure({"algo-1": {"model/a": "a"}, "algo-2": {"model/b": "b"}})
    (tmp_path / "algo-2" / "model" / "latest").symlink_to("b")
    (tmp_path / "algo-2" / "model" / "empty").mkdir()
    os.mkfifo(tmp_path / "algo-2" / "model" / "pipe")
    upload(configs)
    assert stored(tmp_path)["model.tar.gz"] == {"a": "a", "b": "b", "empty": "/", "latest": "b"}


def test_folders_can_be_nested_deeper_than_python_calls(configure: Any) -> None:
    [config] = configure({"algo-1": {f"model/{'d/' * 200}w": "w"}}, hosts=("algo-1",))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        listed = list_outputs(config.paths, Skipped(), archived=True)
    finally:
        sys.setrecursionlimit(limit)
    assert len(listed) == 201


def test_the_archive_has_the_same_bytes_every_time(configure: Any, tmp_path: Path) -> None:
    def archive(upload: Callable[[list[HostConfig]], Results]) -> bytes:
        configs = configure(CLASHING)
        for path in tmp_path.glob("algo-*/model/**/*"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        upload(configs)
        return (tmp_path / "out" / "model.tar.gz").read_bytes()

    assert archive(upload_apart) == archive(upload_apart) == archive(upload_together)


def test_only_what_no_other_host_has_passes_through_the_store(configure: Any, tmp_path: Path) -> None:
    same = {"model/weights": "same"}
    list_and_share(configure({"algo-1": same, "algo-2": {**same, "model/own": "2"}}))
    [part] = (tmp_path / "out").iterdir()
    with tarfile.open(part) as archive:
        assert archive.getnames() == ["own"]


def test_a_host_that_dies_while_it_shares_leaves_no_archive_and_the_next_attempt_has_only_its_own(
    configure: Any, tmp_path: Path
) -> None:
    first = {"algo-1": {"model/first-1": "1"}, "algo-2": {"model/first-2": "2", "output/data/first": "x"}}
    list_and_share(configure(first))
    assert not (tmp_path / "out" / "model.tar.gz").exists()
    upload_apart(configure({"algo-1": {"model/second": "1"}}, attempt=1))
    assert stored(tmp_path) == {"model.tar.gz": {"second": "1"}}


def test_a_store_that_fails_while_outputs_are_merged_has_no_archive(configure: Any, tmp_path: Path) -> None:
    merge, (leader, _) = list_and_share(configure({"algo-1": {"model/a": "1"}, "algo-2": {"model/b": "2"}}))
    [part] = (tmp_path / "out").iterdir()
    part.write_bytes(part.read_bytes()[:600])  # the connection breaks
    with pytest.raises((OSError, tarfile.TarError)):
        leader.assemble({"givers": merge.givers(), "warnings": []}, silent)
    part.unlink()
    with pytest.raises(NotFound):
        leader.assemble({"givers": merge.givers(), "warnings": []}, silent)
    assert not list((tmp_path / "out").iterdir())
    assert not list((tmp_path / "algo-1").glob(".upload-*"))


@pytest.mark.parametrize("compressed", [True, False])
def test_nothing_of_an_earlier_attempt_remains(
    configure: Any, upload: Any, tmp_path: Path, compressed: bool
) -> None:
    upload(configure(CLASHING, compress_output=compressed))
    second = {"algo-1": {"model/weights": "second"}}
    results = upload(configure(second, compress_output=compressed, attempt=1))
    expected = {"model.tar.gz": {"weights": "second"}} if compressed else {"model/weights": "second"}
    assert stored(tmp_path) == expected
    assert results.discarded == ["output"]


def test_the_outputs_of_a_failed_attempt_replace_nothing_that_it_does_not_have(
    configure: Any, tmp_path: Path
) -> None:
    upload_together(configure(CLASHING))
    leader = configure({"algo-1": {"output/data/log": "failed", "model/weights": "bad"}}, attempt=1)[:1]
    assert upload_outputs(leader, silent, model=False).uploaded.keys() == {"output"}
    assert stored(tmp_path)["output.tar.gz"] == {"log": "failed"}
    assert stored(tmp_path)["model.tar.gz"]["weights"] == "leader"


def test_parts_of_an_attempt_that_failed_are_removed(configure: Any, tmp_path: Path) -> None:
    configs = configure({"algo-2": {"model/weights": "w"}})
    list_and_share(configs)
    assert list((tmp_path / "out").iterdir())
    remove_parts(configs[0])
    assert not list((tmp_path / "out").iterdir())


def test_a_killed_upload_leaves_no_temporary_archive_for_the_next_one(configure: Any, tmp_path: Path) -> None:
    configs = configure(CLASHING)
    (tmp_path / "algo-1" / ".upload-killed").mkdir()
    (tmp_path / "algo-1" / ".upload-killed" / "model.tar.gz").write_text("half")
    upload_together(configs)
    assert not list((tmp_path / "algo-1").glob(".upload-*"))


def test_if_the_platform_uploads_each_file_stays_on_one_host(configure: Any, tmp_path: Path) -> None:
    """SageMaker merges the folders of all hosts, and does not say which file wins."""
    configs = configure(CLASHING, output_uri="")
    results = upload_apart(configs)
    assert not results.uploaded
    assert results.warnings
    left = {
        str(path.relative_to(tmp_path)): path.read_text()
        for folder in ("model", "output/data")
        for path in tmp_path.glob(f"algo-*/{folder}/**/*")
        if path.is_file()
    }
    assert left == {
        "algo-1/model/weights": "leader",
        "algo-1/model/d/1": "1",
        "algo-1/output/data/log": "one",
        "algo-2/model/d/2": "2",
    }
