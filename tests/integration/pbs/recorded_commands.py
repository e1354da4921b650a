#!/usr/bin/env python3
"""The commands of PBS Professional and Cobalt, which answer as recorded: no package of Debian has these schedulers.

Linked under their names. Jobs are real processes of this machine, one for each node, with the node's name. Sources of
what they print: qsub(1B), qstat(1B), pbsdsh(1B) and pbs_error.h of OpenPBS 23.06;
qsub.py, qstat.py and qdel.py of Cobalt 1.0; public outputs of both.
"""

from __future__ import annotations

import getpass
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

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
    name = re.search(r"^(?:-N |--jobname )(\S+)", "\n".join(given), re.MULTILINE)[1]  # type: ignore[index]
    pid = 0 if (STATE / "held").exists() else _run(script, count)
    (STATE / "job").write_text(json.dumps({"pid": pid, "name": name, "folder": os.getcwd()}))
    print(NUMBER)
    return 0


def _run(script: Path, count: int) -> int:
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
            [script.absolute()], env={**kept, **own}, cwd=kept["HOME"], stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, start_new_session=True,
        )  # fmt: skip
    return process.pid


def qselect(arguments: list[str]) -> int:
    assert arguments == ["-u", getpass.getuser()]
    job = _job()
    if job and (not job["pid"] or _is_alive(job["pid"])):
        print(NUMBER)
    return 0


def _job() -> Any:
    return json.loads((STATE / "job").read_text()) if (STATE / "job").exists() else None


def qstat(arguments: list[str]) -> int:
    (STATE / "qstat.calls").open("a").write("x")
    if (STATE / "away").exists():
        print("pbs_iff: cannot connect to host", file=sys.stderr)  # and exits with 0
        return 0
    job = _job()
    is_alive = bool(job) and bool(job["pid"]) and _is_alive(job["pid"])
    if IS_COBALT:
        assert arguments == ["-u", getpass.getuser(), "--header", "JobID:State:User:JobName:OutputPath"]
        if not job or (job["pid"] and not is_alive):
            return 0  # a job that has ended is not in the table
        state = "running" if is_alive else "queued"
        row = f"{NUMBER}  {state}  {getpass.getuser()}  {job['name']}  {job['folder']}/scheduler.log"
        print(f"JobID   State  User  JobName  OutputPath\n{'=' * 40}\n{row}")
        return 0
    if job["pid"] and not is_alive and "-x" not in arguments:
        print(
            f"qstat: {NUMBER} Job has finished, use -x or -H to obtain historical job information",
            file=sys.stderr,
        )
        return 35
    letter = "R" if is_alive else "F" if job["pid"] else "Q"
    owner = f"{getpass.getuser()}@login1"
    print(
        f"Job Id: {NUMBER}\n    Job_Name = {job['name']}\n    Job_Owner = {owner}\n    job_state = {letter}"
    )
    print(f"    Output_Path = login1:{job['folder']}/scheduler.log")
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


def qrerun(arguments: list[str]) -> int:
    """The server starts a job again whose first node it has lost."""
    job = _job()
    pid = _run(Path(job["folder"], "job.sh"), len((STATE / "nodefile").read_text().split()))
    (STATE / "job").write_text(json.dumps({**job, "pid": pid}))
    return 0


def qdel(arguments: list[str]) -> int:
    job = _job()
    if job["pid"]:
        os.killpg(job["pid"], signal.SIGTERM)
    else:
        (STATE / "job").write_text(json.dumps({**job, "pid": 2**22}))
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
    commands = (qsub, qselect, qstat, qrerun, qdel, pbsdsh, aprun)
    name = Path(sys.argv[0]).name
    sys.exit(next(command for command in commands if command.__name__ == name)(sys.argv[1:]))
