"""The pure parts of the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import (
    FailureClass,
    FailureReport,
    Host,
    Launcher,
    Paths,
    RankSlot,
    Settings,
    decode_hyperparameters,
    encode_hyperparameters,
    gpu_count,
    read_document,
    script_environment,
    to_arguments,
)

VALUES: dict[str, Any] = {
    "i": 1,
    "f": 1e-7,
    "s": "a b",
    "numeric": "007",
    "version": "1.10",
    "t": "true",
    "none": None,
    "flag": False,
    "list": [1, "x", None],
    "dict": {"k": [1]},
    "uni": "é",
    "empty": "",
    "quote": 'it\'s "q"',
}


def test_hyperparameters_survive_a_round_trip_through_json() -> None:
    assert decode_hyperparameters(encode_hyperparameters(VALUES)) == VALUES


def test_strings_that_are_not_json_are_kept() -> None:
    assert decode_hyperparameters({"a": "abc", "b": "5", "c": '"5"', "d": "{"}) == {
        "a": "abc",
        "b": 5,
        "c": "5",
        "d": "{",
    }


def test_arguments_are_sorted_and_strings_untouched() -> None:
    assert to_arguments({"b": 1, "aa": "1.10", "c": [1, 2], "dd": True, "ee": None}) == [
        "--aa",
        "1.10",
        "-b",
        "1",
        "-c",
        "[1, 2]",
        "--dd",
        "True",
        "--ee",
        "",
    ]


def test_sagemakers_hosts_are_in_natural_order_and_the_first_is_the_leader() -> None:
    host = Host.from_document({"current_host": "algo-2", "hosts": ["algo-10", "algo-2", "algo-1"]})
    assert host.hosts == ("algo-1", "algo-2", "algo-10")
    assert (host.rank, host.count, host.leads, host.leader) == (1, 3, False, "algo-1")
    assert Host.from_document(host.to_document()) == host
    given = Host.from_document({"current_host": "b10", "hosts": ["b10", "a1", "b9"]})
    assert given.hosts == ("b10", "a1", "b9")  # the user's or the scheduler's order
    with pytest.raises(ValueError, match="'x' is not one of"):
        Host.from_document({"current_host": "x", "hosts": ["algo-1"]})


def test_ranks_are_numbered_host_by_host() -> None:
    slots = [slot for host in range(2) for slot in RankSlot.on_host(host, 2, 3)]
    assert [slot.rank for slot in slots] == list(range(6))
    assert slots[4].environment("h", 1) == {
        "RANK": "4",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "h",
        "MASTER_PORT": "1",
    }


@pytest.mark.parametrize("host_count", [1, 2])
def test_without_launcher_only_our_own_variables_have_the_rank(host_count: int) -> None:
    *_, slot = (slot for host in range(host_count) for slot in RankSlot.on_host(host, host_count, 1))
    environ = slot.environment_without_launcher("h", 1)
    shared = {"MASTER_ADDR", "MASTER_PORT"} if host_count > 1 else set()
    assert {name for name in environ if not name.startswith("CLOUDTRAIN_")} == shared
    assert environ["CLOUDTRAIN_RANK"] == str(host_count - 1)


@pytest.mark.parametrize(
    "launcher",
    [
        Launcher(),
        Launcher("torchrun"),
        Launcher("mpirun", 8, custom_mpi_options="-x 'A=b c'"),
        Launcher("processes", 2),
        Launcher("multi_worker_mirrored"),
        Launcher("parameter_server"),
        Launcher("agent", 2, agent_command="launch 'a b' {hosts}"),
        Launcher("agent", agent_command="ray symmetric-run", agent_preset="ray"),
        Launcher("horovod", 2, implementation="cloudtrain"),
    ],
)
def test_launchers_survive_a_round_trip_through_hyperparameters(launcher: Launcher) -> None:
    encoded = encode_hyperparameters(launcher.to_hyperparameters())
    assert Launcher.from_hyperparameters(decode_hyperparameters(encoded)) == launcher


def test_ray_has_one_rank_on_a_host() -> None:
    assert Launcher("agent", agent_command="x").ranks_on_host(8) == 8
    assert Launcher("agent", agent_command="x", agent_preset="ray").ranks_on_host(8) == 1


@pytest.mark.parametrize(
    ("launcher", "gpus", "ranks"),
    [
        ("single", 8, 1),
        ("parameter_server", 8, 1),
        ("multi_worker_mirrored", 8, 1),
        ("torchrun", 8, 8),
        ("torchrun", 0, 1),
    ],
)
def test_one_rank_for_each_gpu(launcher: str, gpus: int, ranks: int) -> None:
    assert Launcher(launcher).ranks_on_host(gpus) == ranks


@pytest.mark.parametrize(("visible", "count"), [("0,1", 2), ("", 0), ("-1", 0), ("GPU-a", 1)])
def test_visible_gpus_are_counted(visible: str, count: int) -> None:
    assert gpu_count({"CUDA_VISIBLE_DEVICES": visible}) == count


def test_settings_survive_a_round_trip_through_the_environment() -> None:
    settings = Settings(
        job_name="j", channels=(("train", "s3://b/é"),), stop_grace=1.5, master_port=7, compress_output=False
    )
    environ = settings.to_environ()
    assert sorted(environ) == [
        "CLOUDTRAIN_CHANNELS",
        "CLOUDTRAIN_COMPRESS_OUTPUT",
        "CLOUDTRAIN_JOB_NAME",
        "CLOUDTRAIN_MASTER_PORT",
        "CLOUDTRAIN_STOP_GRACE",
    ]
    assert Settings.from_environ(environ) == settings
    assert Settings.from_environ({}) == Settings()
    with pytest.raises(ValueError, match="CLOUDTRAIN_MASTER_PORT='x'"):
        Settings.from_environ({"CLOUDTRAIN_MASTER_PORT": "x"})


def test_the_error_for_invalid_json_names_the_document(tmp_path: Path) -> None:
    assert read_document(tmp_path / "nosuch", {}) == {}
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ValueError, match=r"x\.json is not JSON"):
        read_document(tmp_path / "x.json", {})


def test_the_environment_has_the_formats_of_the_toolkit() -> None:
    host = Host("algo-2", ("algo-1", "algo-2"), "eth0", "ml.p4d.24xlarge")
    hyperparameters = {"lr": 0.1, "name": "x y", "none": None, "sagemaker_program": "train.py"}
    environment = script_environment(
        Paths(Path("/opt/ml")),
        host,
        hyperparameters,
        {"train": {"TrainingInputMode": "File"}},
        arguments=["--lr", "0.1", "fit", ""],
        job_name="j",
        entry_point="train.py",
        master=("algo-1", 7777),
    )
    expected = {
        "SM_HOSTS": '["algo-1","algo-2"]',
        "SM_HPS": '{"lr":0.1,"name":"x y","none":null}',
        "SM_HP_LR": "0.1",
        "SM_HP_NAME": "x y",
        "SM_HP_NONE": "",
        "SM_USER_ARGS": '["--lr","0.1","fit",""]',
        "SM_CHANNELS": '["train"]',
        "SM_CHANNEL_TRAIN": "/opt/ml/input/data/train",
        "SM_MODULE_NAME": "train",
        "SM_CURRENT_HOST_RANK": "1",
        "SM_IS_HETERO": "false",
        "SM_LOG_LEVEL": "20",
        "SM_MASTER_ADDR": "algo-1",
        "SM_FRAMEWORK_PARAMS": '{"sagemaker_program":"train.py"}',
        "CURRENT_HOST": "algo-2",
    }
    assert {name: environment[name] for name in expected} == expected
    assert json.loads(environment["SM_TRAINING_ENV"])["is_master"] is False


SUMMARIES = [
    (
        FailureReport(FailureClass.KILLED, "", rank=1, host="algo-2", signal=9, exit_code=137),
        "rank 1 on algo-2 was killed by SIGKILL",
    ),
    (
        FailureReport(FailureClass.USER_ERROR, "bad\nthing", rank=0, exception_type="ValueError"),
        "rank 0 raised ValueError: bad",
    ),
    (
        FailureReport(FailureClass.USER_ERROR, "", rank=0, exception_type="MemoryError"),
        "rank 0 raised MemoryError",
    ),
    (FailureReport(FailureClass.USER_ERROR, "", rank=0, exit_code=7), "rank 0 exited with code 7"),
    (
        FailureReport(FailureClass.USER_ERROR, "its last line: x", rank=0, exit_code=7),
        "rank 0 exited with code 7: its last line: x",
    ),
    (FailureReport(FailureClass.STORAGE, "gone", host="algo-1", phase="fetch"), "fetch on algo-1: gone"),
    (FailureReport(FailureClass.PLATFORM, "why"), "the job: why"),
]


@pytest.mark.parametrize(("report", "summary"), SUMMARIES)
def test_a_report_in_one_line(report: FailureReport, summary: str) -> None:
    assert report.summary() == summary
    assert FailureReport.from_json(report.to_json()) == report


def test_the_reason_keeps_the_end_of_a_long_traceback() -> None:
    report = FailureReport(
        FailureClass.USER_ERROR, "x", "do this", rank=0, exception_type="E", traceback="a" * 5000 + "the end"
    )
    assert len(report.reason()) == 1024
    assert report.reason().startswith("rank 0 raised E: x [user-error]\ndo this\n")
    assert report.reason().endswith("the end")


def test_a_report_of_a_newer_version_can_be_read() -> None:
    assert FailureReport.from_dict({"failure_class": "hang", "message": "m", "new_field": 1}).message == "m"
