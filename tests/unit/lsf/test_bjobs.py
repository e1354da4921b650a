"""Answers of bjobs and bhist, as recorded, and damaged ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.batch.scheduler import ENDED, RUNNING, WAITING
from cloudtrain.platforms.lsf.platform import LSF, LsfPlatform, explain, parse_bhist, parse_bjobs
from cloudtrain.spec import TrainingJob

JSON = r"""
{
  "COMMAND":"bjobs",
  "JOBS":3,
  "RECORDS":[
    {"JOBID":"21680", "STAT":"DONE", "EXIT_CODE":"", "SUBMIT_TIME":"Dec 20 16:25", "JOB_NAME":"digits",
     "SUB_CWD":"$HOME\/jobs\/digits", "EXIT_REASON":"", "PEND_REASON":""},
    {"JOBID":"21681", "STAT":"EXIT", "EXIT_CODE":"140", "JOB_NAME":"mnist",
     "EXIT_REASON":"TERM_RUNLIMIT: job killed after reaching LSF run time limit", "PEND_REASON":""},
    {"JOBID":"21682", "STAT":"PEND", "PEND_REASON":"New job is waiting for scheduling;"},
    {"JOBID":"7", "ERROR":"Job <7> is not found"}
  ]
}
"""


def test_json() -> None:
    found = parse_bjobs(JSON)
    assert [*found] == ["21680", "21681", "21682"]
    done, killed, waiting = found.values()
    assert (done.state, done.name, done.folder) == (ENDED, "digits", f"{Path.home()}/jobs/digits")
    assert done.submitted is not None and time.localtime(done.submitted)[1:6] == (12, 20, 16, 25, 59)
    assert done.submitted < time.time() + 86400
    assert (killed.exit_status, waiting.state, waiting.why) == (
        140,
        WAITING,
        "New job is waiting for scheduling",
    )
    report = explain(killed)
    assert report and "more time than it had asked for" in report.message
    assert explain(done) is None


def test_before_json() -> None:
    text = "764220165^PEND^-^Feb  2 00:44^aiida-1033444^/home/ada^-^a^b;\n764220166^UNKWN^-^-^-^-^-^-\n"
    waiting, unknown = parse_bjobs(text).values()
    assert (waiting.state, waiting.why, waiting.exit_status) == (WAITING, "a^b", None)
    assert unknown.state == RUNNING, "unknown is not ended"


@pytest.mark.parametrize(
    ("today", "shown", "minute"),
    [
        ((2029, 1, 10), "Feb 29 10:00", (2028, 2, 29)),
        ((2028, 3, 1), "Feb 29 10:00", (2028, 2, 29)),
        ((2029, 1, 10), "Feb 29 10:00 2024", (2024, 2, 29)),
        ((2029, 1, 10), "Dec 20 10:00", (2028, 12, 20)),
        ((2029, 1, 10), "Jan 10 10:00", (2029, 1, 10)),
        ((2027, 1, 10), "Feb 29 10:00", None),
        ((2029, 1, 10), "yesterday", None),
    ],
)
def test_the_year_of_a_submission(
    today: tuple[int, int, int],
    shown: str,
    minute: tuple[int, int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.mktime((*today, 12, 0, 0, 0, 0, -1))
    monkeypatch.setattr("time.time", lambda: now)
    [job] = parse_bjobs(f"1^RUN^-^{shown}^a^/home/ada^-^-\n").values()
    assert job.submitted == (None if minute is None else time.mktime((*minute, 10, 0, 59, 0, 0, -1)))


@pytest.mark.parametrize("text", ["", "\n", "LSF is down. Please wait ...", "1^2", '{"RECORDS": []}'])
def test_no_jobs(text: str) -> None:
    assert parse_bjobs(text) == {}


@pytest.mark.parametrize(
    "text", [JSON[:200], "{", '{"COMMAND": "bjobs"}', '{"RECORDS": [1]}', '{"RECORDS": {"JOBID": "1"}}']
)
def test_a_damaged_answer_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_bjobs(text)


def test_hostile_values() -> None:
    text = '{"RECORDS": [{"JOBID": "1\\n2"}, {"JOBID": 3}, {"JOBID": "4", "STAT": [], "EXIT_CODE": "9e9"}]}'
    assert [(number, row.state, row.exit_status) for number, row in parse_bjobs(text).items()] == [
        ("4", RUNNING, None)
    ]


def test_bhist() -> None:
    text = """
Job <873209>, Job Name <digits>, User <ada>, Project <default>, Command <fdfs>
Tue Dec 23 16:34:13: Exited with exit code 1. The CPU time used is 31911.0 seco
                     nds;

Tue Dec 23 16:34:13: Completed <exit>; TERM_MEMLIMIT: job killed after reaching
                      LSF memory usage limit;

Job <873210>, User <ada>, Project <default>, Command <fdfs>
Sun Jan 10 17:50:11: Submitted from host <login>, to Queue <normal>;
"""
    ((number, entry),) = parse_bhist(text).items()
    assert (number, entry.name, entry.exit_status) == ("873209", "digits", 1)
    assert entry.why == "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit"


FIRST_RUN = """
Job <7>, Job Name <digits>, User <ada>, Project <default>, Command <python3>
Tue Dec 23 14:46:50: Starting (Pid 4242);
Tue Dec 23 15:00:00: Exited with exit code 99. The CPU time used is 3.0 seconds;
Tue Dec 23 15:00:00: Completed <exit>; TERM_REQUEUE_OWNER: job killed and requeued by owner;
Tue Dec 23 15:00:00: Pending: Job has been requeued;
"""
KILLED = """\
Tue Dec 23 16:00:00: Exited by signal 9. The CPU time used is 3.0 seconds;
Tue Dec 23 16:00:00: Completed <exit>; TERM_MEMLIMIT: job killed after reaching LSF memory usage limit;
"""
STARTS = "Tue Dec 23 15:46:50: Starting (Pid 4243);\n"


@pytest.mark.parametrize(
    ("last_run", "status", "why"),
    [
        (STARTS + KILLED, 137, "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit"),
        (KILLED, 137, "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit"),
        (STARTS + "Tue Dec 23 16:00:00: Exited by signal 11. The CPU time used is 3.0 seconds;\n", 139, ""),
        (STARTS + "Tue Dec 23 16:00:00: Exited. The CPU time used is unknown;\n", None, ""),
        (STARTS + "Tue Dec 23 16:00:00: Done successfully. The CPU time used is 3.0 seconds;\n", None, ""),
    ],
)
def test_the_last_run_of_a_requeued_job_counts(last_run: str, status: int | None, why: str) -> None:
    [entry] = parse_bhist(FIRST_RUN + last_run).values()
    assert (entry.exit_status, entry.why) == (status, why)


def test_a_requeued_job_that_runs_has_not_ended() -> None:
    assert parse_bhist(FIRST_RUN + STARTS) == {}


def test_directives() -> None:
    options = {
        "queue": "gpu",
        "gpus": 4,
        "gpu_type": "A100",
        "mem": "64GB",
        "directives": ["#BSUB -x", "-network type=sn_all"],
    }
    job = TrainingJob(
        entry_point="train.py", job_name="digits", platform_options=options, instance_count=2, max_run=3600
    )
    lines = LSF.lines(job, LsfPlatform().options_of(job))
    assert lines == [
        "#BSUB -J digits",
        "#BSUB -o scheduler.log",
        "#BSUB -r",
        "#BSUB -q gpu",
        "#BSUB -W 64",
        "#BSUB -n 8",
        '#BSUB -R "span[ptile=4]"',
        '#BSUB -R "rusage[mem=64GB]"',
        '#BSUB -gpu "num=4/host:mode=shared:gmodel=A100"',
        "#BSUB -x",
        "#BSUB -network type=sn_all",
    ]


@pytest.mark.parametrize("line", ["-J mine", "-oo out", "-W 1", "gpus=2", "-Is bash"])
def test_what_is_refused(line: str) -> None:
    job = TrainingJob(entry_point="train.py", job_name="a", platform_options={"directives": [line]})
    with pytest.raises(InvalidJob, match=r"sets -|not an option of bsub"):
        LSF.lines(job, LsfPlatform().options_of(job))
