"""The output of Slurm's commands, recorded from Slurm 22.05.8, and programs of their names that print it again.

The columns that `squeue` asks for are the same up to 26.05.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HEADER = """\
ARRAY_JOB_ID|ARRAY_TASK_ID|STATE|START_TIME|END_TIME|SUBMIT_TIME|PRIORITY|PARTITION|NODES|NODELIST|NAME|WORK_DIR|REASON
"""
ROWS = """\
2|N/A|PENDING|1795390748|1795394348|1795390687|4294901758|main|2||a-job|/jobs/a-job|Resources
3|N/A|PENDING|N/A|N/A|1795390687|4294901757|main|3||a-job|/jobs/a-job|PartitionNodeLimit
5|N/A|PENDING|1795394287|1795397887|1795390687|4294901756|main|1||a-job|/jobs/a-job|BeginTime
6|0|PENDING|1795397940|1795401540|1795390687|4294901755|main|1||a-job|/jobs/a-job|Priority
6|1|PENDING|1795397940|1795401540|1795390687|4294901755|main|1||a-job|/jobs/a-job|Priority
7|N/A|PENDING|N/A|N/A|1795390687|4294901754|main|1||a-job|/jobs/a-job|Dependency
4|N/A|PENDING|N/A|N/A|1795390687|0|main|1||a-job|/jobs/a-job|JobHeldUser
17|N/A|PENDING|N/A|N/A|1795390854|4294901746|main|1||a-job|/jobs/a-job|ReqNodeNotAvail, UnavailableNodes:127.0.0.3
1|N/A|RUNNING|1795390688|1795390748|1795390687|4294901759|main|2|127.0.0.[2-3]|a-job|/jobs/a-job|None
13|N/A|NODE_FAIL|1795390843|1795390847|1795390843|4294901750|main|2|127.0.0.[2-3]|a-job|/jobs/a-job|NodeDown
14|N/A|FAILED|1795390851|1795390851|1795390848|4294901749|main|1|127.0.0.2|a-job|/jobs/a-job|NonZeroExitCode
15|N/A|FAILED|1795390851|1795390851|1795390848|4294901748|main|1|127.0.0.2|a-job|/jobs/a-job|JobLaunchFailure
18|N/A|TIMEOUT|1795390688|1795390750|1795390687|4294901759|main|2|127.0.0.[2-3]|a-job|/jobs/a-job|TimeLimit
"""
SQUEUE = HEADER + ROWS

SCONTROL = (
    "JobId=13 JobName=wrap UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901750 Nice=0 Account=(null) "
    "QOS=(null) JobState=NODE_FAIL Reason=NodeDown Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 "
    "ExitCode=0:15 RunTime=00:00:04 TimeLimit=00:01:00 TimeMin=N/A SubmitTime=1795390843 StartTime=1795390843 "
    "EndTime=1795390847 Deadline=N/A Partition=main ReqNodeList=(null) ExcNodeList=(null) NodeList=127.0.0.[2-3] "
    "BatchHost=127.0.0.2 NumNodes=2 Features=(null) Comment=JobState=RUNNING WorkDir=/tmp/life Power= \n"
)

SACCT = """\
12|CANCELLED by 0|0:15|1795390851|00:01:00|127.0.0.[2-3]|a-job|/jobs/a-job|None
13|NODE_FAIL|0:0|1795390847|01:00:00|127.0.0.[2-3]|a-job|/jobs/a-job|None
14|FAILED|7:0|1795390851|01:00:00|127.0.0.2|a-job|/jobs/a-job|None
15|FAILED|0:9|1795390851|01:00:00|127.0.0.2|a-job|/jobs/a-job|None
18|TIMEOUT|0:0|1795390750|00:01:00|127.0.0.[2-3]|a-job|/jobs/a-job|None
20_3|OUT_OF_MEMORY|0:125|1795390750|UNLIMITED|127.0.0.2|a-job|/jobs/a-job|None
21|PREEMPTED|0:0|1795390750|Partition_Limit|127.0.0.2|a-job|/jobs/a-job|None
22|PENDING|0:0|Unknown|01:00:00|None assigned|a-job|/jobs/a-job|None
"""

NO_ACCOUNTING = "Slurm accounting storage is disabled"
NO_CONTROLLER = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
NO_JOB = "slurm_load_jobs error: Invalid job id specified"
NO_ELEMENT = "Job 1_1 not found\n"
"""On the output of ``scontrol``, not among its errors."""


@dataclass(frozen=True)
class Programs:
    """Programs called ``squeue``, ``sacct``, ... which print the text of a test, and record their calls."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        for name in ("squeue", "sacct", "scontrol", "scancel", "sinfo"):
            program = self.folder / name
            program.write_text(
                f'#!/bin/sh\ncd {self.folder}\necho "{name} $*" >> calls\n'
                f"cat {name}.out; cat {name}.err >&2; exit $(cat {name}.code)\n"
            )
            program.chmod(0o755)
            self.says(name)

    def says(self, name: str, out: str = "", error: str = "", code: int = 0) -> None:
        (self.folder / f"{name}.out").write_text(out)
        (self.folder / f"{name}.err").write_text(f"{error}\n" if error else "")
        (self.folder / f"{name}.code").write_text(str(code))

    def calls(self, name: str = "") -> list[str]:
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.split()[0].startswith(name)]

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
