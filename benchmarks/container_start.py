"""Time to the first line of the user's script in two containers, against docker and both SageMaker SDKs.

    python benchmarks/container_start.py [--runs 5]

Measures wall-clock seconds from just before the start of the command to the first statement of the script in the
later of two containers. Each command runs to its end. The script imports nothing. "By hand" is a network and two
concurrent ``docker run``, in a shell script. The local modes of the SDKs need ``docker-compose``, version 2; their
containers run SageMaker's training toolkit (version 2) or the SDK's drivers (version 3). The engine is a real dockerd
on a simulated host of this machine (which requires root), with one image for all contestants. As in the tests, the
image mounts this machine's programs. The commands take turns. Prints rows of a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import _peers
import _sagemaker_local
import docker
from _aws import without_telemetry
from _common import TEST_FOLDERS, header, in_turns, row

sys.path += TEST_FOLDERS
import engine_daemon

# the SDKs stop all containers when the first one ends: the sleep lets the others reach their first line
SCRIPT = 'import time; print(f"first line at {time.time()!r}.", flush=True); time.sleep(5)\n'
SAID = re.compile(r"first line at ([0-9.]+)\.")
CONTAINERS = 2

SUBMIT = "cloudtrain submit train.py --platform container --instance-count 2"
BY_HAND = "docker network create, two docker run"

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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    toolkit = _peers.sagemaker_training()
    with tempfile.TemporaryDirectory() as scratch:
        folder, state = Path(scratch, "source"), Path(scratch, "engine")
        folder.mkdir()
        state.mkdir()
        (folder / "train.py").write_text(SCRIPT)
        _sagemaker_local.write_scripts(folder)
        mounted = [*engine_daemon.MOUNTED, str(toolkit.parents[1])]
        with engine_daemon.docker_engine(state, mounted) as engine:
            image = _with_toolkit(engine.url, toolkit)
            environ = {
                **os.environ,
                **_sagemaker_local.ENVIRONMENT,
                **without_telemetry(state),
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "CLOUDTRAIN_HOME": str(state / "home"),
                "DOCKER_HOST": engine.url,
            }
            first = partial(first_line, folder=folder, environ=environ)
            turns = contestants(image, folder, first)
            seconds = in_turns(turns, runs)
    ours = [what for what in turns if what.startswith("cloudtrain")]
    print(header())
    for what in ours:
        for peer in turns:
            if peer not in ours:
                print(row(f"`{what}`", seconds[what], peer, seconds[peer]))


def contestants(
    image: str, folder: Path, first: Callable[[list[str]], float]
) -> dict[str, Callable[[], float]]:
    """The contestants by their names in the table."""
    submit = [*shlex.split(SUBMIT), "--set", f"image_uri={image}"]

    def edit_and_submit() -> float:
        with open(folder / "train.py", "a") as script:
            script.write("# edited\n")
        return first([*submit, "--mount-source"])

    turns: dict[str, Callable[[], float]] = {
        SUBMIT: partial(first, submit),
        f"{SUBMIT} --mount-source": edit_and_submit,
        BY_HAND: partial(first, ["sh", "-ec", _BY_HAND.format(image=image)]),
    }
    if _sagemaker_local.has_compose():
        for name, python, script in (
            (_peers.SAGEMAKER_2, _peers.sagemaker_2(), "version_2.py"),
            (_peers.SAGEMAKER_3, _peers.sagemaker_3(), "version_3.py"),
        ):
            turns[f"{name}, local mode"] = partial(first, [str(python), script, image])
    else:
        print("docker-compose is not installed: skipping the SDKs", file=sys.stderr)
    return turns


def first_line(command: list[str], folder: Path, environ: dict[str, str]) -> float:
    """Run the command to its end; returns the seconds until the last container reached its first line.

    Raises:
        RuntimeError: a container did not reach its script; with the output.
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
    """Create the image of all contestants: this Python is first on its PATH, SageMaker's ``train`` last."""
    with closing(docker.DockerClient(base_url=url)) as client:
        bare = client.containers.create(engine_daemon.IMAGE, "true")
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin:{toolkit.parent}"
        bare.commit("with-toolkit", "latest", changes=f"ENV PATH={path}")
        bare.remove()
    return "with-toolkit:latest"


if __name__ == "__main__":
    main()
