"""Why a pod ended of which the runtime left no ending, from the pod's status.

https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions, kubelet 1.29 to 1.37
"""

from __future__ import annotations

import re
import signal

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.platforms.kubernetes.life.objects import Object, items, part, text
from cloudtrain.platforms.kubernetes.life.pods import Pod

RESUMES = "Submit the job again: it resumes from its last checkpoint."
SIGKILL_CODE = 128 + 9
SIGTERM_CODE = 128 + signal.SIGTERM

_LOW = re.compile(r"The node was low on resource: (?P<resource>[\w-]+)")
_FULL = re.compile(r"ephemeral(?:.local)?.storage|EmptyDir volume", re.IGNORECASE)
_ADMISSION = re.compile(r"OutOf(?P<one>\w+)|Outof(?P<two>\S+)")
_NO_SHELL = re.compile(
    r'exec: "(?P<program>[^"]+)": (?:stat \S+: )?(?:no such file|executable file not found)'
)
_GPU = re.compile(r"nvidia-container-cli|libnvidia|nvidia\.com/gpu|unresolvable CDI devices", re.IGNORECASE)


def cause_of(pod: Pod) -> FailureReport | None:
    """Why Kubernetes ended a pod, or could not start it; None if its program ended by itself."""
    found = _killed(pod) or _disrupted(pod) or _not_started(pod)
    if found is None:
        return None
    kind, message, hint, code = found
    end = pod.end
    return FailureReport(
        kind,
        message,
        hint,
        host=pod.host,
        exit_code=code,
        time=end.ended if end else None,
    )


Cause = tuple[FailureClass, str, str, int]


def _killed(pod: Pod) -> Cause | None:
    """A pod that the kubelet killed because of what it used."""
    end = pod.end
    if pod.why_gone == "Evicted":
        return _evicted(pod, text(pod.found, "status", "message"))
    if end and end.reason == "OOMKilled":
        limit = text(_limits(pod), "memory")
        return (
            FailureClass.OUT_OF_MEMORY,
            f"pod {pod.name} was killed because it used more memory than its limit"
            + (f" of {limit}" * bool(limit)),
            "Increase platform_options.memory, or use a smaller batch or fewer workers of data loaders. What is in "
            "/dev/shm counts, too.",
            SIGKILL_CODE,
        )
    return None


def _evicted(pod: Pod, message: str) -> Cause:
    low = _LOW.search(message)
    where = f"pod {pod.name} was evicted from node {pod.node}" if pod.node else f"pod {pod.name} was evicted"
    if _FULL.search(message):
        hint = (
            "Increase platform_options.disk, and write less to the disk of the node."
            if not low
            else "The disk of the node is full: set platform_options.disk to what the job needs, so that it gets a "
            "node that has it."
        )
        return FailureClass.DISK_FULL, f"{where}: {message}", hint, SIGKILL_CODE
    if low and low["resource"] == "memory":
        return (
            FailureClass.OUT_OF_MEMORY,
            f"{where}: {message}",
            "The memory of the node is full: set platform_options.memory to what the job needs, so that it gets a node "
            "that has it.",
            SIGKILL_CODE,
        )
    return (
        FailureClass.PLATFORM,
        f"{where}: {message or 'Kubernetes does not say why'}",
        RESUMES,
        SIGKILL_CODE,
    )


def _disrupted(pod: Pod) -> Cause | None:
    """A pod that was taken away from its node."""
    reason = text(pod.disruption, "reason")
    said = text(pod.disruption, "message") or text(pod.found, "status", "message")
    words = f": {said}" if said else ""
    on = f" on node {pod.node}" if pod.node else ""
    if reason == "PreemptionByScheduler" or pod.why_gone == "Preempting":
        return (
            FailureClass.PREEMPTED,
            f"pod {pod.name}{on} gave way to a pod of a higher priority{words}",
            f"{RESUMES} platform_options.priority_class sets its own priority.",
            SIGTERM_CODE,
        )
    if reason == "EvictionByEvictionAPI":
        return (
            FailureClass.PREEMPTED,
            f"pod {pod.name}{on} was evicted, as for the maintenance of a node{words}",
            RESUMES,
            SIGTERM_CODE,
        )
    is_shutdown = "shutdown" in said.lower() or pod.why_gone in ("Terminated", "Shutdown", "NodeShutdown")
    if is_shutdown and (reason in ("TerminationByKubelet", "") or pod.why_gone):
        return (
            FailureClass.PREEMPTED,
            f"the node of pod {pod.name}{on} shut down{words}",
            RESUMES,
            SIGTERM_CODE,
        )
    if (
        reason in ("DeletionByTaintManager", "DeletionByPodGC")
        or pod.why_gone == "NodeLost"
        or pod.phase == "Unknown"
    ):
        return (
            FailureClass.HOST_LOST,
            f"the node of pod {pod.name} was lost{f' ({pod.node})' if pod.node else ''}{words}",
            RESUMES,
            SIGKILL_CODE,
        )
    if pod.end and pod.end.reason == "ContainerStatusUnknown":
        return (
            FailureClass.HOST_LOST,
            f"the node of pod {pod.name}{on} lost its container: {pod.end.message}",
            RESUMES,
            SIGKILL_CODE,
        )
    return None


def _not_started(pod: Pod) -> Cause | None:
    """A pod that a node took, and could not start."""
    end, said = pod.end, text(pod.found, "status", "message")
    if pod.why_gone == "DeadlineExceeded":
        return (
            FailureClass.TIME_LIMIT,
            f"pod {pod.name} reached its deadline",
            "The limit is its activeDeadlineSeconds.",
            SIGTERM_CODE,
        )
    refused = _ADMISSION.fullmatch(pod.why_gone)
    if refused or pod.why_gone in (
        "UnexpectedAdmissionError",
        "NodeAffinity",
        "TopologyAffinityError",
        "NodePorts",
    ):
        kind = FailureClass.GPU_SETUP if _GPU.search(said) else FailureClass.PLATFORM
        return (
            kind,
            f"node {pod.node} did not accept pod {pod.name}: {said or pod.why_gone}",
            "Submit the job again. If it repeats, the devices of that node are broken: its administrators should know.",
            1,
        )
    if end is None or end.reason not in ("StartError", "ContainerCannotRun", "CreateContainerError"):
        return None
    program = _NO_SHELL.search(end.message)
    if program:
        return (
            FailureClass.PLATFORM,
            f"image {pod.image} has no {program['program']}",
            "An image needs /bin/sh and Python 3.9 or newer. Use one that has them, such as python:3.12-slim.",
            end.code or 127,
        )
    kind = FailureClass.GPU_SETUP if _GPU.search(end.message) else FailureClass.PLATFORM
    return kind, f"pod {pod.name} could not start: {end.message}", "", end.code or 128


def _limits(pod: Pod) -> Object:
    for one in items(pod.found, "spec", "containers"):
        if one.get("name") == pod.container:
            found: Object = part(one, "resources", "limits")
            return found
    return {}
