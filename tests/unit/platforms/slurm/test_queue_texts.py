"""The output of Slurm's commands about jobs, and the sentences that we make of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from slurm_texts import HEADER, ROWS, SACCT, SCONTROL, SQUEUE

from cloudtrain.contract import FailureClass
from cloudtrain.platforms.slurm.jobs import refused
from cloudtrain.platforms.slurm.pending import why_pending
from cloudtrain.platforms.slurm.squeue import is_table, parse_order, parse_sacct, parse_scontrol, parse_squeue
from cloudtrain.platforms.slurm.states import Ending, explain

pytestmark = pytest.mark.proof("Slurm 24.11, 26.05", imitated="answers of their commands")

REASONS = """
AccountNotAllowed AccountingPolicy AssocGrpBB AssocGrpBBMinutes AssocGrpBBRunMinutes AssocGrpBilling
AssocGrpBillingMinutes AssocGrpBillingRunMinutes AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit AssocGrpCpuLimit
AssocGrpEnergy AssocGrpEnergyMinutes AssocGrpEnergyRunMinutes AssocGrpGRES AssocGrpGRESMinutes AssocGrpGRESRunMinutes
AssocGrpJobsLimit AssocGrpLicense AssocGrpLicenseMinutes AssocGrpLicenseRunMinutes AssocGrpMemLimit AssocGrpMemMinutes
AssocGrpMemRunMinutes AssocGrpNodeLimit AssocGrpNodeMinutes AssocGrpNodeRunMinutes AssocGrpSubmitJobsLimit
AssocGrpUnknown AssocGrpUnknownMinutes AssocGrpUnknownRunMinutes AssocGrpWallLimit AssocMaxBBMinutesPerJob
AssocMaxBBPerJob AssocMaxBBPerNode AssocMaxBillingMinutesPerJob AssocMaxBillingPerJob AssocMaxBillingPerNode
AssocMaxCpuMinutesPerJobLimit AssocMaxCpuPerJobLimit AssocMaxCpuPerNode AssocMaxEnergyMinutesPerJob
AssocMaxEnergyPerJob AssocMaxEnergyPerNode AssocMaxGRESMinutesPerJob AssocMaxGRESPerJob AssocMaxGRESPerNode
AssocMaxJobsLimit AssocMaxLicenseMinutesPerJob AssocMaxLicensePerJob AssocMaxMemMinutesPerJob AssocMaxMemPerJob
AssocMaxMemPerNode AssocMaxNodeMinutesPerJob AssocMaxNodePerJobLimit AssocMaxSubmitJobLimit
AssocMaxUnknownMinutesPerJob AssocMaxUnknownPerJob AssocMaxUnknownPerNode AssocMaxWallDurationPerJobLimit
AssociationJobLimit AssociationResourceLimit AssociationTimeLimit BadConstraints BeginTime BurstBufferOperation
BurstBufferResources BurstBufferStageIn Cleaning Constraints DeadLine Dependency DependencyNeverSatisfied FedJobLock
FrontEndDown InvalidAccount InvalidQOS JobArrayTaskLimit JobHeldAdmin JobHeldUser JobHoldMaxRequeue Licenses
MaxBBPerAccount MaxBillingPerAccount MaxCpuPerAccount MaxEnergyPerAccount MaxGRESPerAccount MaxJobsPerAccount
MaxLicensePerAccount MaxMemPerLimit MaxMemoryPerAccount MaxNodePerAccount MaxSubmitJobsPerAccount MaxUnknownPerAccount
NodeDown None PartitionConfig PartitionDown PartitionInactive PartitionNodeLimit PartitionTimeLimit PowerNotAvail
PowerReserved Priority Prolog QOSGrpBB QOSGrpBBMinutes QOSGrpBilling QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit
QOSGrpCpuLimit QOSGrpEnergy QOSGrpGRES QOSGrpGRESMinutes QOSGrpJobsLimit QOSGrpLicense QOSGrpMemLimit
QOSGrpMemoryMinutes QOSGrpNodeLimit QOSGrpSubmitJobsLimit QOSGrpUnknown QOSGrpWallLimit QOSJobLimit QOSMaxBBPerJob
QOSMaxBillingPerUser QOSMaxCpuMinutesPerJobLimit QOSMaxCpuPerJobLimit QOSMaxCpuPerNode QOSMaxCpuPerUserLimit
QOSMaxGRESMinutesPerJob QOSMaxGRESPerJob QOSMaxGRESPerNode QOSMaxGRESPerUser QOSMaxJobsPerUserLimit QOSMaxMemoryPerJob
QOSMaxNodePerJobLimit QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxWallDurationPerJobLimit QOSMinBB
QOSMinCpuNotSatisfied QOSMinGRES QOSMinMemory QOSMinNode QOSNotAllowed QOSResourceLimit QOSTimeLimit QOSUsageThreshold
ReqNodeNotAvail Reservation ReservationDeleted ReservationInvalid Resources SchedDefer SystemFailure
"""
"""Reasons of pending jobs that Slurm documents, from 22.05 to 26.05."""


def test_rows_of_squeue() -> None:
    rows = parse_squeue(f"CLUSTER: kraken\n{SQUEUE}\nslurm_load_jobs error\n9|N/A|PEN\n")
    assert len(rows) == 13
    waiting = rows["2"]
    assert (waiting.state, waiting.reason, waiting.start, waiting.partition) == (
        "PENDING",
        "Resources",
        1795390748.0,
        "main",
    )
    assert rows["6_1"].reason == "Priority"
    assert rows["3"].start is None
    assert rows["17"].reason == "ReqNodeNotAvail, UnavailableNodes:127.0.0.3"
    assert (rows["1"].nodes, rows["1"].node_count, rows["1"].is_waiting) == ("127.0.0.[2-3]", 2, False)
    assert [number for number, row in rows.items() if row.is_ended] == ["13", "14", "15", "18"]
    assert (
        parse_squeue("19|N/A|A_LATER_STATE|N/A|N/A|1|1|main|1||a-job|/jobs/a-job|x|y")["19"].is_ended is False
    )


def test_what_is_not_a_whole_table() -> None:
    assert is_table(SQUEUE)
    assert is_table(HEADER)
    assert is_table(f"CLUSTER: kraken\n{SQUEUE}")
    for text in (
        "",
        "slurm_load_jobs error: x\n",
        ROWS,
        SQUEUE[:-1],
        SQUEUE[:-20],
        SQUEUE[: SQUEUE.rindex("|main")] + "\n",
    ):
        assert not is_table(text)
    named = (
        HEADER
        + "1|N/A|RUNNING|1|2|1|1|main|1|n1|a\n2|job|/jobs/x|None\n2|N/A|RUNNING|1|2|1|1|main|1|n1|b|/b|None\n"
    )
    assert is_table(named)
    assert [(row.number, row.name) for row in parse_squeue(named).values()] == [("1", "a 2"), ("2", "b")]


def test_the_place_in_the_queue_counts_those_that_wait_for_nodes() -> None:
    order = """\
90|N/A|4294901999|gpu,main|Priority
3|N/A|4294901757|main|PartitionNodeLimit
2|N/A|4294901757|main|Resources
5|N/A|4294901756|main|BeginTime
6|1|4294901755|main|Priority
6|0|4294901755|main|Priority
4|N/A|0|main|JobHeldUser
"""
    assert parse_order(order, parse_squeue(SQUEUE)) == {
        "2": (2, 5),  # the one that was submitted first, of two with the same priority
        "3": (3, 5),
        "6_0": (4, 5),
        "6_1": (5, 5),
    }


def test_every_reason_has_a_sentence() -> None:
    for reason in REASONS.split():
        text = str(why_pending(reason, number="12", partition="gpu"))
        assert reason not in text
        assert "Slurm says" not in text
        assert "(resources)" not in text or "Unknown" in reason
        assert "{" not in text
        assert text == str(why_pending(f"({reason})", number="12", partition="gpu"))


def test_reasons_have_a_hint() -> None:
    assert "scontrol release 12" in str(why_pending("JobHeldUser", number="12"))
    assert "scontrol release 12" in str(why_pending("job requeued in held state", number="12"))
    assert "scontrol release 12" in str(why_pending("job_requeued_in_held_state", number="12"))
    down = str(why_pending("ReqNodeNotAvail, UnavailableNodes:n[1-3],m7"))
    assert "are down, drained or reserved: n[1-3],m7. Often" in down
    assert "more than its QOS allows for a job (GPUs" in str(why_pending("QOSMaxGRESPerJob"))
    assert "your account has used up its minutes of CPUs" in str(why_pending("AssocGrpCPUMinutesLimit"))
    assert "its QOS has reached the limit for a user (running jobs)" in str(
        why_pending("QOSMaxJobsPerUserLimit")
    )
    assert "could not start it" in str(why_pending("launch failed requeued held"))
    assert "could not start it" in str(why_pending("launch_failed_requeued_held"))
    assert str(why_pending("{site} wants more")) == "Slurm says {site} wants more."


@pytest.mark.parametrize(
    "complaint",
    [
        "sbatch: error: s_p_parse_file: cannot stat file /no/slurm.conf: No such file or directory, retrying in 1sec",
        "sbatch: error: fetch_config: DNS SRV lookup failed\nsbatch: fatal: Could not establish a configuration source",
    ],
)
def test_a_missing_configuration(complaint: str) -> None:
    error = refused(complaint, "kraken")
    assert error.message.startswith("Slurm's commands do not find their configuration on kraken: sbatch: ")
    assert "SLURM_CONF" in error.hint


def test_rows_of_the_accounting() -> None:
    endings = parse_sacct(SACCT)
    assert endings["12"] == Ending(
        "CANCELLED",
        "0",
        0,
        15,
        nodes="127.0.0.[2-3]",
        limit="00:01:00",
        ended_at=1795390851.0,
        name="a-job",
        folder="/jobs/a-job",
    )
    assert endings["14"].exit_code == 7
    assert endings["20_3"].limit == ""
    assert (endings["22"].state, endings["22"].nodes, endings["22"].ended_at) == ("PENDING", "", None)
    unnamed = parse_sacct("30|FAILED|7:0|1795390851|UNLIMITED|127.0.0.2|allocation||None")["30"]
    assert (unnamed.exit_code, unnamed.name) == (7, "")  # slurmdbd has not got the start of the job yet
    found = parse_scontrol(SCONTROL)
    assert found == Ending(
        "NODE_FAIL", "", 0, 15, "NodeDown", "127.0.0.[2-3]", "00:01:00", 1795390847.0, "wrap", "/tmp/life"
    )
    assert parse_scontrol("slurm_load_jobs error: Invalid job id specified") is None


@pytest.mark.parametrize(
    ("number", "failure_class", "words", "code"),
    [
        ("12", FailureClass.KILLED, "an administrator (root) cancelled the job", 137),
        ("13", FailureClass.HOST_LOST, "a node of the job failed (nodes: 127.0.0.[2-3])", 137),
        ("14", FailureClass.PLATFORM, "exited with code 7 and left no outcome: module: not found", 7),
        ("15", FailureClass.KILLED, "was killed by SIGKILL: module: not found", 137),
        ("18", FailureClass.TIME_LIMIT, "ended by the scheduler's time limit of 00:01:00", 143),
        ("20_3", FailureClass.OUT_OF_MEMORY, "more memory than it was allocated", 137),
        ("21", FailureClass.PREEMPTED, "gave the nodes of the job to a job of a higher priority", 143),
    ],
)
def test_endings_are_distinguished(number: str, failure_class: FailureClass, words: str, code: int) -> None:
    report = explain(parse_sacct(SACCT)[number], number, "module: not found")
    assert report.failure_class == failure_class
    assert words in report.message
    assert report.exit_code == code
    assert report.hint
    assert report.time == parse_sacct(SACCT)[number].ended_at


def test_a_launch_failure_differs_from_a_killed_script() -> None:
    launch = Ending("FAILED", exit_code=0, reason="JobLaunchFailure", nodes="n1")
    assert explain(launch, "15").message == "Slurm could not start the job on its nodes (n1)"
    killed = explain(replace(launch, signal=9), "15")
    assert (killed.failure_class, killed.signal) == (FailureClass.KILLED, 9)
    not_shared = explain(replace(launch, signal=53), "15")
    assert "could not write into the job's folder" in not_shared.message
    assert "All nodes must share that folder" in not_shared.hint
    assert "batch step ended without an outcome" in explain(Ending("COMPLETED"), "15").message
    assert explain(Ending("A_LATER_STATE"), "15").message.startswith("Slurm says A_LATER_STATE of the job")
    assert "user ada cancelled" in explain(Ending("CANCELLED", "ada"), "15").message
