#!/usr/bin/env python3
"""The commands of PBS Professional and Cobalt, which answer as recorded: no package of Debian has these schedulers.

Linked under their names. Sources of what they print: qsub(1B), qstat(1B), pbsdsh(1B) and pbs_error.h of OpenPBS 23.06;
qsub.py, qstat.py and qdel.py of Cobalt 1.0; public outputs of both.
"""

from __future__ import annotations

import getpass
import itertools
import os
import re
import signal
import sys
from pathlib import Path

from recorded_processes import NODES, STATE, is_running, keep, kept_job, main, start, start_on

IS_COBALT = os.environ["RECORDED"] == "cobalt"
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
    keep({"pid": pid, "name": name, "folder": os.getcwd()})
    print(NUMBER)
    return 0


def _run(script: Path, count: int) -> int:
    nodefile = STATE / "nodefile"
    nodefile.write_text("".join(f"{node}\n" for node in NODES[:count]))
    own = (
        {"COBALT_JOBID": NUMBER, "COBALT_PARTNAME": ",".join(NODES[:count]), "COBALT_JOBSIZE": str(count)}
        if IS_COBALT
        else {"PBS_JOBID": NUMBER, "PBS_NODEFILE": str(nodefile), "PBS_ENVIRONMENT": "PBS_BATCH"}
    )
    return start(script, own)


def qselect(arguments: list[str]) -> int:
    assert arguments == ["-u", getpass.getuser()]
    job = kept_job()
    if job and (not job["pid"] or is_running(job)):
        print(NUMBER)
    return 0


def qstat(arguments: list[str]) -> int:
    (STATE / "qstat.calls").open("a").write("x")
    if (STATE / "away").exists():
        print("pbs_iff: cannot connect to host", file=sys.stderr)  # and exits with 0
        return 0
    job = kept_job()
    is_alive = is_running(job)
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


def qrerun(arguments: list[str]) -> int:
    """The server starts a job again whose first node it has lost."""
    job = kept_job()
    pid = _run(Path(job["folder"], "job.sh"), len((STATE / "nodefile").read_text().split()))
    keep({**job, "pid": pid})
    return 0


def qdel(arguments: list[str]) -> int:
    job = kept_job()
    if job["pid"]:
        os.killpg(job["pid"], signal.SIGTERM)
    else:
        keep({**job, "pid": 2**22})
        (STATE / "exit_status").write_text("271")
    if IS_COBALT:
        print(f"      Deleted Jobs\nJobID   User\n=============\n{arguments[-1]}  ada")
    return 0


def on_all_nodes(command: list[str], nodes: list[str], environ: dict[str, str]) -> int:
    """Run a command once on each node, without input. Each has its own host name."""
    started = [start_on(node, command, environ) for node in nodes]
    return max(process.wait() for process in started)


def pbsdsh(arguments: list[str]) -> int:
    nodes = Path(os.environ["PBS_NODEFILE"]).read_text().split()
    return on_all_nodes(arguments[arguments.index("--") + 1 :], nodes, {"PATH": "/usr/sbin:/usr/bin:/bin"})


def aprun(arguments: list[str]) -> int:
    assert arguments[:3] == ["-q", "-n", os.environ["COBALT_JOBSIZE"]] and arguments[3:5] == ["-N", "1"]
    return on_all_nodes(arguments[5:], os.environ["COBALT_PARTNAME"].split(","), dict(os.environ))


if __name__ == "__main__":
    main(qsub, qselect, qstat, qrerun, qdel, pbsdsh, aprun)
