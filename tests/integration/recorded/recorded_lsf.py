#!/usr/bin/env python3
"""The commands of LSF, which answer as recorded: LSF is not free software.

Linked under their names. Sources of what they print: bsub(1), bjobs(1), bkill(1), bhist(1) and blaunch(8) of LSF 10.1;
public outputs of all but blaunch.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import subprocess
import sys

from recorded_processes import NODES, STATE, is_running, keep, kept_job, main, start, start_on

NUMBER = "21680"


def bsub(arguments: list[str]) -> int:
    assert not arguments, "the script is the standard input"
    script = sys.stdin.read()
    given = [line.removeprefix("#BSUB ") for line in script.splitlines() if line.startswith("#BSUB ")]
    if "-q nowhere" in given:
        print("nowhere: No such queue. Job not submitted.", file=sys.stderr)
        return 255
    (STATE / "asked").write_text("\n".join(given))
    (STATE / "spooled").write_text(script)
    flags = dict(line.split(maxsplit=1) for line in given if " " in line)
    slots = int(re.search(r"ptile=(\d+)", "\n".join(given))[1])  # type: ignore[index]
    hosts = NODES[: int(flags["-n"]) // slots]
    job = {"name": flags["-J"], "folder": os.getcwd(), "hosts": hosts, "slots": slots, "pid": 0}
    keep(job if (STATE / "held").exists() else {**job, "pid": _run(hosts, slots)})
    if (STATE / "silent").exists():  # the answer is lost
        print("Failed in an LSF library call: Failed in sending/receiving a message", file=sys.stderr)
        return 255
    print(f"Job <{NUMBER}> is submitted to queue <normal>.")
    return 0


def _run(hosts: list[str], slots: int) -> int:
    (STATE / "spooled").chmod(0o700)
    own = {
        "LSB_JOBID": NUMBER,
        "LSB_MCPU_HOSTS": " ".join(f"{host} {slots}" for host in hosts),
        "LSB_HOSTS": " ".join(host for host in hosts for _ in range(slots)),
        "LSF_ENVDIR": "/opt/lsf/conf",
        "CUDA_VISIBLE_DEVICES": "of the first host",
    }
    return start(STATE / "spooled", own)


def bjobs(arguments: list[str]) -> int:
    if (STATE / "away").exists():
        print("LSF is down. Please wait ...", file=sys.stderr)
        return 255
    if (STATE / "torn").exists():
        print('{\n  "COMMAND":"bjobs",\n  "JOBS":1,\n  "RECORDS":[\n    {\n      "JOBID":"216')
        return 0
    is_json = "-json" in arguments
    if is_json and (STATE / "old").exists():
        print("bjobs: illegal option -- json", file=sys.stderr)
        return 255
    words = arguments[arguments.index("-o") + 1].split()
    fields = [word for word in words if not word.startswith("delimiter=")]
    wanted = arguments[arguments.index("-o") + 2 :]
    job = kept_job()
    if (STATE / "cleaned").exists():
        job = None
    if job is None:
        if wanted:
            print(f"Job <{wanted[0]}> is not found", file=sys.stderr)
        else:
            print("No job found", file=sys.stderr)
        return 255
    is_alive = is_running(job)
    ended = json.loads((STATE / "ended").read_text()) if (STATE / "ended").exists() else {}
    row = {
        "jobid": NUMBER,
        "stat": "RUN" if is_alive else "PEND" if not job["pid"] else "EXIT" if ended else "DONE",
        "submit_time": subprocess.check_output(["date", "+%b %e %H:%M"], text=True).strip(),
        "job_name": job["name"],
        "sub_cwd": job["folder"].replace(os.environ["HOME"] + "/", "$HOME/"),
        "pend_reason": ""
        if job["pid"]
        else "Job requirements for reserving resource (ngpus) not satisfied: 2 hosts;",
        **ended,
    }
    shown = {name: row.get(name, "") for name in fields}
    if is_json:
        record = {name.upper(): value for name, value in shown.items()}
        print(json.dumps({"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [record]}, indent=2))
    else:
        delimiter = words[-1].split("=")[1].strip("'")
        print(delimiter.join(value or "-" for value in shown.values()))
    return 0


def bhist(arguments: list[str]) -> int:
    assert arguments == ["-n", "0", "-l", NUMBER]
    print(
        f"""
Job <{NUMBER}>, Job Name <{kept_job()["name"]}>, User <{getpass.getuser()}>, Project <default>, Comm
                     and <#!/bin/bash;exec python3>
Tue Dec 23 14:46:43: Submitted from host <login1>, to Queue <normal>, CWD <$HOME>;
Tue Dec 23 16:34:13: Exited with exit code 140. The CPU time used is 31911.0 seco
                     nds;
Tue Dec 23 16:34:13: Completed <exit>; TERM_RUNLIMIT: job killed after reaching
                      LSF run time limit;
"""
    )
    return 0


def bkill(arguments: list[str]) -> int:
    job = kept_job()
    if job["pid"]:
        os.killpg(job["pid"], signal.SIGTERM)
    else:
        keep({**job, "pid": 2**22})
    (STATE / "ended").write_text(
        json.dumps({"exit_reason": "TERM_OWNER: job killed by owner", "exit_code": "130"})
    )
    print(f"Job <{arguments[-1]}> is being terminated")
    return 0


def brequeue(arguments: list[str]) -> int:
    job = kept_job()
    keep({**job, "pid": _run(job["hosts"], job["slots"])})
    return 0


def blaunch(arguments: list[str]) -> int:
    assert os.environ["LSB_JOBID"] and arguments[0] == "-n" and arguments[2] == "-no-shell"
    host, command = arguments[1], arguments[3:]
    return start_on(host, command, {**os.environ, "CUDA_VISIBLE_DEVICES": f"of {host}"}).wait()


if __name__ == "__main__":
    main(bsub, bjobs, bhist, bkill, brequeue, blaunch)
