#!/usr/bin/env python3
"""The commands of PBS Professional and Cobalt, which answer as recorded: no package of Debian has these schedulers.

Linked under the names qsub, qstat, qdel, pbsdsh and aprun. Jobs are real processes of this machine, one for each node,
with the node's name. Sources of what they print: qsub(1B), qstat(1B), pbsdsh(1B) and pbs_error.h of OpenPBS 23.06;
qsub.py, qstat.py and qdel.py of Cobalt 1.0; public outputs of both.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

STATE = Path(os.environ["RECORDED_STATE"])
IS_COBALT = os.environ["RECORDED"] == "cobalt"
NODES = ["127.0.0.2", "127.0.0.3"]
NUMBER = "101234" if IS_COBALT else "1042.pbs01"


def qsub(arguments: list[str]) -> int:
    script = Path(arguments[-1])
    prefix = "#COBALT " if IS_COBALT else "#PBS "
    lines = script.read_text().splitlines()[1:]
    if IS_COBALT:  # it reads no further than to the first line that is something else
        lines = list(itertools.takewhile(lambda line: line.startswith(prefix), lines))
    given = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    if "-q nowhere" in given:
        print("qsub: Unknown queue", file=sys.stderr)
        return 170  # PBSE_UNKQUE 15018, as an exit status
    if IS_COBALT and arguments[:2] != ["--mode", "script"]:
        return 1
    count = int(re.search(r"(?:-n |select=)(\d+)", "\n".join(given))[1])  # type: ignore[index]
    (STATE / "asked").write_text("\n".join(given))
    if not (STATE / "held").exists():
        _run(script, count)
    else:
        (STATE / "job").write_text(json.dumps({"pid": 0}))
    print(NUMBER)
    return 0


def _run(script: Path, count: int) -> None:
    nodefile = STATE / "nodefile"
    nodefile.write_text("".join(f"{node}\n" for node in NODES[:count]))
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "RECORDED", "RECORDED_STATE")}
    own = (
        {"COBALT_JOBID": NUMBER, "COBALT_PARTNAME": ",".join(NODES[:count]), "COBALT_JOBSIZE": str(count)}
        if IS_COBALT
        else {"PBS_JOBID": NUMBER, "PBS_NODEFILE": str(nodefile), "PBS_ENVIRONMENT": "PBS_BATCH"}
    )
    with open(STATE / "printed", "ab") as output:
        process = subprocess.Popen(
            [script], env={**kept, **own}, cwd=kept["HOME"], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    (STATE / "job").write_text(json.dumps({"pid": process.pid}))


def qstat(arguments: list[str]) -> int:
    job = json.loads((STATE / "job").read_text())
    is_alive = bool(job["pid"]) and _is_alive(job["pid"])
    if IS_COBALT:
        state = "running" if is_alive else "queued"
        if job["pid"] and not is_alive:
            return 0  # a job that has ended is not in the table
        print(f"JobID   State  \n{'=' * 15}\n{arguments[-1]}  {state}")
        return 0
    if job["pid"] and not is_alive and "-x" not in arguments:
        print(
            f"qstat: {NUMBER} Job has finished, use -x or -H to obtain historical job information",
            file=sys.stderr,
        )
        return 35
    letter = "R" if is_alive else "F" if job["pid"] else "Q"
    print(f"Job Id: {NUMBER}\n    Job_Name = train\n    job_state = {letter}")
    if letter == "Q":
        print("    comment = Not Running: Insufficient amount of resource: ngpus (R: 4 A: 0 T:\n\t8)")
    if letter == "F":
        status = (STATE / "exit_status").read_text() if (STATE / "exit_status").exists() else "0"
        print(
            f"    Exit_status = {status}\n    comment = Job run at Mon Nov 02 at 09:31 on (n1:ncpus=8) and finished"
        )
    print("    Variable_List = PBS_O_HOME=/home/ada,PBS_O_LANG=C.UTF-8,\n\tPBS_O_LOGNAME=ada\n")
    return 0


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def qdel(arguments: list[str]) -> int:
    job = json.loads((STATE / "job").read_text())
    if job["pid"]:
        os.killpg(job["pid"], signal.SIGTERM)
    else:
        (STATE / "job").write_text(json.dumps({"pid": 2**22}))
        (STATE / "exit_status").write_text("271")
    if IS_COBALT:
        print(f"      Deleted Jobs\nJobID   User\n=============\n{arguments[-1]}  ada")
    return 0


def on_all_nodes(command: list[str], nodes: list[str], environ: dict[str, str]) -> int:
    """Run a command once on each node, without input. Each has its own host name."""
    started = [
        subprocess.Popen(
            ["unshare", "-u", "sh", "-c", 'hostname "$0" && exec "$@"', node, *command],
            env=environ, stdin=subprocess.DEVNULL, cwd="/",
        )
        for node in nodes
    ]  # fmt: skip
    return max(process.wait() for process in started)


def pbsdsh(arguments: list[str]) -> int:
    nodes = Path(os.environ["PBS_NODEFILE"]).read_text().split()
    return on_all_nodes(arguments[arguments.index("--") + 1 :], nodes, {"PATH": "/usr/sbin:/usr/bin:/bin"})


def aprun(arguments: list[str]) -> int:
    assert arguments[:3] == ["-q", "-n", os.environ["COBALT_JOBSIZE"]] and arguments[3:5] == ["-N", "1"]
    return on_all_nodes(arguments[5:], os.environ["COBALT_PARTNAME"].split(","), dict(os.environ))


if __name__ == "__main__":
    name = Path(sys.argv[0]).name
    sys.exit(
        {"qsub": qsub, "qstat": qstat, "qdel": qdel, "pbsdsh": pbsdsh, "aprun": aprun}[name](sys.argv[1:])
    )
