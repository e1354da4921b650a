"""Time to the first line of the user's script in two containers, against docker and both SageMaker SDKs.

    python benchmarks/on_containers.py [--runs 5] [--quick] [--json]

Measures wall-clock seconds from just before the start of the command to the first statement of the script in the
later of two containers. Each command runs to its end. The script imports nothing. "By hand" is a network and two
concurrent ``docker run``, in a shell script. The local modes of the SDKs need ``docker-compose``, version 2; their
containers run SageMaker's training toolkit (version 2) or the SDK's drivers (version 3). The engine is a real dockerd
on a simulated host of this machine (which requires root), with one image for all contestants. As in the tests, the
image mounts this machine's programs. The commands take turns.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import docker
from _aws import without_telemetry
from _common import OURS, TEST_FOLDERS, PeerMissing, Report, in_turns, run_parts
from _peers import SAGEMAKER_2, SAGEMAKER_3, SAGEMAKER_TRAINING, peer

sys.path += TEST_FOLDERS
import engine_daemon

# the sleep lets all containers reach their first line, because the SDKs stop all of them when the first one ends
SCRIPT = 'import time; print(f"first line at {time.time()!r}.", flush=True); time.sleep(5)\n'
SAID = re.compile(r"first line at ([0-9.]+)\.")
CONTAINERS = 2

SUBMIT = "cloudtrain submit train.py --platform container --instance-count 2"
EDITED = "cloudtrain, after an edit, with --mount-source"
BY_HAND = "two docker run"

# like the containers of a job: on their own network, with the source mounted
_BY_HAND = """
docker network create hand >/dev/null
for host in algo-1 algo-2; do
    docker run --rm --network hand --hostname $host --network-alias $host -v "$PWD:/opt/ml/code:ro" \\
        -w /opt/ml/code {image} python -u train.py &
done
wait
docker network rm hand >/dev/null
"""


# code and output are on this machine, not on AWS
SDK_ENVIRONMENT: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

LOCAL_2 = """
import os, sys
from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession

session = LocalSession()
session.config = {"local": {"local_code": True}}
Estimator(
    sys.argv[1],
    "arn:aws:iam::123456789012:role/role",
    instance_count=2,
    instance_type="local",
    entry_point="train.py",
    source_dir=os.getcwd(),
    output_path="file://" + os.getcwd() + "/out",
    sagemaker_session=session,
).fit()
"""

LOCAL_3 = """
import os, sys
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.training.configs import Compute, SourceCode
from sagemaker.train.model_trainer import Mode, ModelTrainer

ModelTrainer(
    training_mode=Mode.LOCAL_CONTAINER,
    sagemaker_session=Session(),
    role="arn:aws:iam::123456789012:role/role",
    source_code=SourceCode(source_dir=os.getcwd(), entry_script="train.py"),
    compute=Compute(instance_type="local_cpu", instance_count=2),
    training_image=sys.argv[1],
    local_container_root=os.getcwd() + "/out",
).train()
"""


def start(report: Report, given: argparse.Namespace) -> None:
    python = Path(sys.executable)
    with report.optional(SAGEMAKER_TRAINING):
        python = peer(SAGEMAKER_TRAINING)
    with tempfile.TemporaryDirectory() as scratch:
        folder, state = Path(scratch, "source"), Path(scratch, "engine")
        folder.mkdir()
        state.mkdir()
        (folder / "train.py").write_text(SCRIPT)
        mounted = [*engine_daemon.MOUNTED, str(python.parents[1])]
        with engine_daemon.docker_engine(state, mounted) as engine:
            image = _with_toolkit(engine.url, python)
            environ = {
                **os.environ,
                **SDK_ENVIRONMENT,
                **without_telemetry(state),
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "CLOUDTRAIN_HOME": str(state / "home"),
                "DOCKER_HOST": engine.url,
            }
            turns = contestants(report, image, folder, partial(first_line, folder=folder, environ=environ))
            report.add_all("first line in two containers", in_turns(turns, given.runs))


def contestants(
    report: Report, image: str, folder: Path, first: Callable[[list[str]], float]
) -> dict[str, Callable[[], float]]:
    submit = [*shlex.split(SUBMIT), "--set", f"image_uri={image}"]

    def edit_and_submit() -> float:
        with open(folder / "train.py", "a") as script:
            script.write("# edited\n")
        return first([*submit, "--mount-source"])

    turns: dict[str, Callable[[], float]] = {
        OURS: partial(first, submit),
        EDITED: edit_and_submit,
        BY_HAND: partial(first, ["sh", "-ec", _BY_HAND.format(image=image)]),
    }
    (folder / "out").mkdir()
    for name, script, text in (
        (SAGEMAKER_2, "version_2.py", LOCAL_2),
        (SAGEMAKER_3, "version_3.py", LOCAL_3),
    ):
        with report.optional(name):
            if not shutil.which("docker-compose"):
                raise PeerMissing("its local mode needs docker-compose, version 2")
            (folder / script).write_text(text)
            turns[f"{name}, local mode"] = partial(first, [str(peer(name)), script, image])
    return turns


def first_line(command: list[str], folder: Path, environ: dict[str, str]) -> float:
    """Run the command to its end; returns the seconds until the last container reached its first line.

    Raises:
        RuntimeError: a container did not reach its script. The message contains the output.
    """
    start = time.time()
    done = subprocess.run(
        command, cwd=folder, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    began = [float(said) for said in SAID.findall(done.stdout)]
    if len(began) != CONTAINERS:
        raise RuntimeError(f"{shlex.join(command)}: {len(began)} containers began\n{done.stdout}")
    return max(began) - start


def _with_toolkit(url: str, toolkit: Path) -> str:
    """Create the image of all contestants, with this Python first on its PATH, and SageMaker's ``train`` last."""
    with closing(docker.DockerClient(base_url=url)) as client:
        bare = client.containers.create(engine_daemon.IMAGE, "true")
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin:{toolkit.parent}"
        bare.commit("with-toolkit", "latest", changes=f"ENV PATH={path}")
        bare.remove()
    return "with-toolkit:latest"


if __name__ == "__main__":
    run_parts(__doc__, {"start": start})
