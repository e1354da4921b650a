"""The contract, checked from inside a job. Every platform runs this suite."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from contract_platforms import PLATFORMS, Place, Seen
from environment_view import VIEWS, environment_view

from cloudtrain import Job
from cloudtrain._display.view import look_at
from cloudtrain.contract import FailureClass

pytestmark = pytest.mark.proof("this machine", real="processes of Linux")

# design: every name that a script may rely on, on every platform
VARIABLES = [
    "SM_HOSTS",
    "SM_CURRENT_HOST",
    "SM_NETWORK_INTERFACE_NAME",
    "SM_HPS",
    "SM_USER_ARGS",
    "SM_USER_ENTRY_POINT",
    "SM_MODULE_NAME",
    "SM_MODULE_DIR",
    "SM_FRAMEWORK_MODULE",
    "SM_FRAMEWORK_PARAMS",
    "SM_CHANNELS",
    "SM_MODEL_DIR",
    "SM_INPUT_DIR",
    "SM_INPUT_CONFIG_DIR",
    "SM_INPUT_DATA_CONFIG",
    "SM_RESOURCE_CONFIG",
    "SM_OUTPUT_DIR",
    "SM_OUTPUT_DATA_DIR",
    "SM_OUTPUT_INTERMEDIATE_DIR",
    "SM_NUM_CPUS",
    "SM_NUM_GPUS",
    "SM_NUM_NEURONS",
    "SM_CURRENT_INSTANCE_TYPE",
    "SM_CURRENT_INSTANCE_GROUP",
    "SM_CURRENT_INSTANCE_GROUP_HOSTS",
    "SM_INSTANCE_GROUPS",
    "SM_INSTANCE_GROUPS_DICT",
    "SM_DISTRIBUTION_INSTANCE_GROUPS",
    "SM_IS_HETERO",
    "SM_LOG_LEVEL",
    "SM_TRAINING_ENV",
    "SAGEMAKER_JOB_NAME",
    "SAGEMAKER_REGION",
    "CURRENT_HOST",
    "PYTHONPATH",
    "CLOUDTRAIN_HOSTFILE",
    "SM_MASTER_ADDR",
    "SM_MASTER_PORT",
    "SM_HOST_COUNT",
    "SM_CURRENT_HOST_RANK",
    "SM_INPUT_DATA_DIR",
    "SM_OUTPUT_FAILURE",
    "SM_SOURCE_DIR",
    "SM_ENTRY_SCRIPT",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SM_HP_LR",
    "SM_HP_TEXT",
    "SM_CHANNEL_TRAIN",
]

SCRIPT = """
import json, os, sys
import helper
from cloudtrain import environment

base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
seen = {
    "environ": dict(os.environ),
    "argv": sys.argv,
    "cwd": os.getcwd(),
    "base": base,
    "folders": sorted(name for name in os.listdir(base) if os.path.isdir(os.path.join(base, name))),
    "documents": {
        name: json.load(open(os.path.join(base, "input", "config", name)))
        for name in ("hyperparameters.json", "resourceconfig.json", "inputdataconfig.json")
    },
    "channel": sorted(os.listdir(os.environ["SM_CHANNEL_TRAIN"])),
    "api": {
        "in_job": environment.in_job(),
        "job_name": environment.job_name(),
        "world": [environment.rank(), environment.world_size()],
        "hyperparameters": environment.hyperparameters(),
        "channel": str(environment.channel("train")),
        "model_dir": str(environment.model_dir()),
        "checkpoint_uri": environment.checkpoint_uri(),
    },
}
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "seen-" + os.environ["RANK"] + ".json"), "w") as file:
    json.dump(seen, file)
"""


FAILS = """
import os, time
import cloudtrain

if os.environ["RANK"] == "0":
    cloudtrain.log(step=7, total_steps=10, loss=0.5)
time.sleep(3)  # until the host has been sampled
if os.environ["RANK"] == "3":
    raise ValueError("it broke")
"""

SPELLINGS = json.loads(
    (Path(__file__).parents[2] / "data" / "toolkit_spellings.json").read_text(encoding="utf-8")
)
"""The command line and the variables that SageMaker's toolkit passes: see ``tests/parity/record_spellings.py``."""

VARIABLES_OF_TOOLKIT = {
    name: text for name, text in SPELLINGS["received"]["variables"].items() if name != "SM_USER_ARGS"
}

HYPERPARAMETERS = {name: json.loads(text) for name, text in SPELLINGS["sent"].items()}

ARGUMENTS = [
    "fit", "--x", "1", "--x", "2", "-vv", "--k=v", "", "--", "007", "it's \"q\"; $(x) `y` \\", "line\r\nfeed\r",
    " é 日 😀 ", "--data={channel.train}/a.txt", "{{channel.train}}", '{"json": 1}', "--rdzv", "x" * 60_000,
    os.fsdecode(b"\xe9"), "",
]  # fmt: skip


@pytest.fixture(scope="module", params=PLATFORMS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("conformance")
    (folder / "data").mkdir()
    for name in "ab":
        (folder / "data" / f"{name}.txt").write_text(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDTRAIN_HOME", str(folder / "home"))
        with PLATFORMS[request.param](folder, request) as place:
            yield replace(place, name=request.param)


@pytest.fixture(scope="module")
def seen(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The observations of each rank."""
    source = tmp_path_factory.mktemp("sees")
    (source / "train.py").write_text(SCRIPT)
    (source / "helper.py").touch()
    arguments = {"arguments": ARGUMENTS} if place.passes_arguments else {}
    job = place.run("conforms", source_dir=str(source), hyperparameters=HYPERPARAMETERS, **arguments)
    assert job.failure is None
    return place.seen(job)


@pytest.fixture(scope="module")
def failed(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job of which a rank has failed."""
    source = tmp_path_factory.mktemp("fails")
    (source / "train.py").write_text(FAILS)
    return place.run("fails", source_dir=str(source))


def test_every_rank_ran(seen: Seen) -> None:
    assert sorted(seen) == [0, 1, 2, 3]


@pytest.mark.parametrize("rank", range(4))
def test_the_environment(place: Place, seen: Seen, rank: int) -> None:
    environ, base = seen[rank]["environ"], seen[rank]["base"]
    assert [name for name in VARIABLES if name not in environ] == []
    host = place.hosts_of("conforms")[rank // 2]
    expected = {
        "SM_HOSTS": '["{}","{}"]'.format(*place.hosts_of("conforms")),
        "SM_CURRENT_HOST": host,
        "CURRENT_HOST": host,
        "SM_CURRENT_HOST_RANK": str(rank // 2),
        "SM_HOST_COUNT": "2",
        **VARIABLES_OF_TOOLKIT,
        "SM_CHANNELS": '["train"]',
        "SM_CHANNEL_TRAIN": f"{base}/input/data/train",
        "SM_MODEL_DIR": f"{base}/model",
        "SM_OUTPUT_DATA_DIR": f"{base}/output/data",
        "SM_USER_ENTRY_POINT": "train.py",
        "SM_MODULE_NAME": "train",
        "SAGEMAKER_JOB_NAME": "conforms",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % 2),
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": str(rank // 2),
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": str(rank),
        "KERAS_DISTRIBUTION_NUM_PROCESSES": "4",
        "KERAS_DISTRIBUTION_PROCESS_ID": str(rank),
        "DMLC_NUM_WORKER": "4",
        "DMLC_TASK_ID": str(rank),
    }
    assert {name: environ[name] for name in expected} == expected
    assert "TF_CONFIG" not in environ  # TensorFlow's Estimators would wait for a cluster
    assert environ["PYTHONPATH"].split(":")[0] == f"{base}/code"
    training = json.loads(environ["SM_TRAINING_ENV"])
    assert (training["current_host"], training["hyperparameters"]["lr"]) == (host, 1e-5)


@pytest.mark.parametrize("rank", [0, 3])
def test_the_whole_environment_is_as_it_was(place: Place, seen: Seen, rank: int) -> None:
    kept = VIEWS / f"{place.name}-rank{rank}.txt"
    view = environment_view(seen[rank], place.hosts_of("conforms"))
    if "CLOUDTRAIN_WRITE_VIEWS" in os.environ:
        kept.write_text(view)
    assert view == kept.read_text(), (
        "if that is meant, set CLOUDTRAIN_WRITE_VIEWS, run this test and read the diff"
    )


def test_trackers_see_one_job(seen: Seen) -> None:
    environs = {rank: seen[rank]["environ"] for rank in seen}
    run_id = environs[0]["CLOUDTRAIN_RUN_ID"]
    assert run_id.startswith("conforms")
    assert [environs[rank]["WANDB_RUN_ID"] for rank in sorted(environs)] == [
        run_id,
        *(f"{run_id}-rank{rank}" for rank in (1, 2, 3)),
    ]
    shared = ("WANDB_RESUME", "WANDB_RUN_GROUP", "CLOUDTRAIN_RUN_ID")
    assert {tuple(environ[name] for name in shared) for environ in environs.values()} == {
        ("allow", "conforms", run_id)
    }
    [attempt] = {environ["CLOUDTRAIN_ATTEMPT_ID"] for environ in environs.values()}
    assert len(attempt) == 32
    assert environs[0]["MLFLOW_RUN_NAME"] == "conforms"
    assert len({environ["COMET_EXPERIMENT_KEY"] for environ in environs.values()}) == 4


def test_all_ranks_have_the_same_master_address(seen: Seen) -> None:
    addresses = {(rank["environ"]["MASTER_ADDR"], rank["environ"]["MASTER_PORT"]) for rank in seen.values()}
    assert len(addresses) == 1
    [(host, port)] = addresses
    servers = ("JAX_COORDINATOR_ADDRESS", "KERAS_DISTRIBUTION_JOB_ADDRESSES", "DMLC_TRACKER_PORT")
    [(jax, keras, tracker)] = {tuple(rank["environ"][name] for name in servers) for rank in seen.values()}
    assert jax == keras
    assert jax.startswith(f"{host}:")
    assert {rank["environ"]["DMLC_TRACKER_URI"] for rank in seen.values()} == {host}
    assert len({port, tracker, jax.rpartition(":")[2]}) == 3
    assert (host, port) == (seen[0]["environ"]["SM_MASTER_ADDR"], seen[0]["environ"]["SM_MASTER_PORT"])


@pytest.mark.parametrize("rank", [0, 3])
def test_the_command_line(place: Place, seen: Seen, rank: int) -> None:
    options = SPELLINGS["received"]["arguments"]
    data = f"--data={seen[rank]['base']}/input/data/train/a.txt"
    changed = {"--data={channel.train}/a.txt": data, "{{channel.train}}": "{channel.train}"}
    line = [changed.get(one, one) for one in ARGUMENTS] if place.passes_arguments else []
    assert seen[rank]["argv"] == ["train.py", *options, *line]
    assert json.loads(seen[rank]["environ"]["SM_USER_ARGS"]) == [*options, *line]


@pytest.mark.parametrize("rank", [0, 3])
def test_files(seen: Seen, rank: int) -> None:
    assert seen[rank]["cwd"] == f"{seen[rank]['base']}/code"
    assert {"checkpoints", "code", "input", "model", "output"} <= set(seen[rank]["folders"])
    assert seen[rank]["channel"] == ["a.txt", "b.txt"]


@pytest.mark.parametrize("rank", [0, 2])
def test_the_documents(place: Place, seen: Seen, rank: int) -> None:
    documents = seen[rank]["documents"]
    hyperparameters = documents["hyperparameters.json"]
    assert all(isinstance(value, str) for value in hyperparameters.values())
    assert (hyperparameters["lr"], hyperparameters["version"]) == ("1e-05", '"1.10"')
    assert hyperparameters["sagemaker_program"] == '"train.py"'
    resources = documents["resourceconfig.json"]
    hosts = place.hosts_of("conforms")
    assert (resources["current_host"], resources["hosts"]) == (hosts[rank // 2], hosts)
    assert documents["inputdataconfig.json"]["train"] == {
        "TrainingInputMode": "File",
        "S3DistributionType": "FullyReplicated",
        "RecordWrapperType": "None",
    }


@pytest.mark.parametrize("rank", [0, 3])
def test_the_python_api_agrees(seen: Seen, rank: int) -> None:
    api, base = seen[rank]["api"], seen[rank]["base"]
    assert api.pop("checkpoint_uri")
    assert api == {
        "in_job": True,
        "job_name": "conforms",
        "world": [rank, 4],
        "hyperparameters": HYPERPARAMETERS,
        "channel": f"{base}/input/data/train",
        "model_dir": f"{base}/model",
    }


def test_a_failure_has_the_same_report_everywhere(place: Place, failed: Job) -> None:
    failure = failed.failure
    assert failure
    assert failure.failure_class == FailureClass.USER_ERROR
    assert (failure.exception_type, failure.message) == ("ValueError", "it broke")
    assert 'raise ValueError("it broke")' in failure.traceback
    assert (failure.host, failure.rank, failure.exit_code) == (place.hosts_of("fails")[1], 3, 1)


def test_the_progress_and_the_metrics_of_a_script_are_seen(place: Place, failed: Job) -> None:
    """Not with SageMaker's toolkit, which prints no events."""
    view = look_at(failed.platform, failed.name)
    found = view.description.step, view.description.total_steps, view.description.metrics
    assert found == ((None, None, {}) if place.name == "sagemaker-toolkit" else (7, 10, {"loss": 0.5}))
    assert [point.value for point in view.series.get("loss", ())] == [*found[2].values()]


def test_every_host_is_sampled(place: Place, failed: Job) -> None:
    """Not with SageMaker's toolkit: CloudWatch has samples there."""
    samples = look_at(failed.platform, failed.name).samples
    hosts = [] if place.name == "sagemaker-toolkit" else place.hosts_of("fails")
    assert sorted(samples) == sorted(hosts)
    for found in samples.values():
        assert found[-1].memory and found[-1].memory_limit and found[-1].cpu is not None
        assert len(found[-1].ranks) == 2
