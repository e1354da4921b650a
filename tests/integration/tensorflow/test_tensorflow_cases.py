"""The cases of `programs`, run by real ranks in TensorFlow's environment, all cases in one launch."""

from __future__ import annotations

import functools
import json
import os
import re
import tempfile
from pathlib import Path

import gpus
import pytest
import warm_python

import cloudtrain
from cloudtrain.contract import RankSlot
from cloudtrain.runtime.ports import free_port

pytestmark = pytest.mark.proof("TensorFlow 2.21, Keras 3 and 2", real="on CPUs")

PROGRAMS = Path(__file__).parent / "programs"
ON_ONE_RANK = ["graphs.keras_trains_with_its_defaults_where_there_is_a_gpu"] + [
    f"training.{case}"
    for case in (
        "fit_equals_one_process_with_the_joined_batches",
        "what_cannot_be_wrapped",
        "an_elastic_state",
        "values",
    )
]
"""The cases that CI also runs on one rank; the soak runs all of their modules."""

ON_GPUS = "gpus"
LAUNCHES: dict[str, tuple[int, list[str], dict[str, str]]] = {
    "keras-3": (2, ["collectives", "training", "graphs"], {}),
    "runtime": (2, ["runtime_collectives"], {}),
    "tf-keras": (2, ["training"], {"TF_USE_LEGACY_KERAS": "1"}),
    "alone": (1, ["collectives", "names", *ON_ONE_RANK], {}),
    "alone, training": (1, ["training", "graphs"], {}),
    ON_GPUS: (2, ["on_gpus"], {}),
}
"""Number of ranks, modules with cases or single cases, and environment variables."""


def cases() -> list[tuple[str, str]]:
    return [
        (launch, case)
        for launch, (_, chosen, variables) in LAUNCHES.items()
        for one in chosen
        for case in ([one] if "." in one else cases_of(one, legacy="TF_USE_LEGACY_KERAS" in variables))
    ]


def cases_of(module: str, legacy: bool) -> list[str]:
    """Indented cases are for tf_keras only."""
    found = re.findall(r"^( *)def case_(\w+)\(", (PROGRAMS / f"{module}.py").read_text(), re.M)
    return [f"{module}.{name}" for indent, name in found if legacy or not indent]


@functools.cache
def failures(python: str, launch: str) -> dict[str, list[str]]:
    """Return the failures of each case, one text per rank."""
    count, chosen, variables = LAUNCHES[launch]
    with tempfile.TemporaryDirectory() as folder:
        own = [gpus.variables(rank, count) if launch == ON_GPUS else {} for rank in range(count)]
        ended = run_ranks(python, [{**variables, **one} for one in own], folder, *chosen)
        reports = [Path(folder, str(rank)) for rank in range(count)]
        errors = [json.loads(path.read_text()) if path.exists() else {} for path in reports]
    return {
        case: [
            f"rank {rank}: {error}"
            for rank, found in enumerate(errors)
            if (error := found.get(case, f"was not run\n{ended}"))
        ]
        for _, case in cases()
    }


@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    ("launch", "case"),
    [pytest.param(*one, marks=[pytest.mark.gpu] if one[0] == ON_GPUS else []) for one in cases()],
)
def test_case(warm_tensorflow: str, launch: str, case: str) -> None:
    found = failures(warm_tensorflow, launch)[case]
    assert not found, "\n".join(found)


def run_ranks(python: str, variables: list[dict[str, str]], *arguments: str) -> str:
    """Run all cases as ranks with these variables until they end. Return stdout and stderr of all ranks."""
    count = len(variables)
    slots = RankSlot.on_host(0, 1, count)
    named = {name for slot in slots for name in slot.environment("", 0)}
    base = {name: value for name, value in os.environ.items() if name not in named}
    base |= {
        "PYTHONPATH": os.pathsep.join(
            str(Path(file).parents[1]) for file in (cloudtrain.__file__, PROGRAMS.parent)
        ),
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_USE_LEGACY_KERAS": "0",  # as other files have it, which import TensorFlow into the same interpreter
    }
    port = free_port()
    places = [slot.environment("127.0.0.1", port) for slot in slots] if count > 1 else [{}]
    command = [str(PROGRAMS / "_run_cases.py"), *arguments]
    interpreter = warm_python.tensorflow(python, {**base, **variables[0]})
    with tempfile.TemporaryFile("w+") as output:
        processes = [
            warm_python.start(command, {**base, **own, **place}, output, output, interpreter=interpreter)
            for own, place in zip(variables, places, strict=True)
        ]
        try:
            for process in processes:
                process.wait(600)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        output.seek(0)
        return output.read()
