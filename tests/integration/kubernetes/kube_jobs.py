"""Plays the controller of Jobs of Kubernetes 1.31: indexed and plain Jobs, policies, limits, suspension, conditions."""

from __future__ import annotations

import copy
import datetime
import time
from dataclasses import dataclass, field
from typing import Any

from kube_client import KubeError
from kube_controller import Controller
from kube_job_policy import failure_action, format_indexes, is_enough
from kube_objects import condition, event, has_condition, is_finished, now, owned_by

Object = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
TRACKED = "batch.kubernetes.io/job-tracking"
"""The finalizer of pods that the controller has not counted yet."""

BACKOFF, LONGEST_BACKOFF = 0.3, 18.0
"""Seconds before a failed pod is replaced, twice as long each time; a cluster takes ten, and ten minutes at most."""


@dataclass
class _Count:
    """The ended pods of one Job that the controller has counted."""

    seen: set[str] = field(default_factory=set)
    succeeded: set[int] = field(default_factory=set)
    failed: int = 0
    ended_by_suspension: set[str] = field(default_factory=set)
    not_before: dict[int, float] = field(default_factory=dict)
    """By index: when its next pod may be made."""
    failures: dict[int, int] = field(default_factory=dict)
    """By index: the pods that failed, whether they count or not."""

    def pause(self, job: Object, index: int) -> None:
        """Without a limit for each index, every pod that has failed doubles the pause before any other is made."""
        self.failures[index] = self.failures.get(index, 0) + 1
        alone = "backoffLimitPerIndex" in job["spec"]
        count = self.failures[index] if alone else sum(self.failures.values())
        until = time.monotonic() + min(BACKOFF * 2.0 ** (count - 1), LONGEST_BACKOFF)
        self.not_before.update(
            dict.fromkeys([index] if alone else range(job["spec"].get("completions", 1)), until)
        )


class JobController(Controller):
    plural = "jobs"
    kind = "Job"

    def __init__(self, cluster: Any) -> None:
        super().__init__(cluster)
        self._counts: dict[str, _Count] = {}

    def gone(self, item: Object) -> None:
        self._counts.pop(item["metadata"]["uid"], None)

    def pod_changed(self, pod: Object) -> None:
        if not self.owned_changed(pod) and TRACKED in (pod["metadata"].get("finalizers") or ()):
            self._release(pod)  # its Job has gone

    def sync(self, job: Object) -> float | None:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        job = self.client.get("jobs", namespace, name)
        spec = job["spec"]
        if spec.get("managedBy", "kubernetes.io/job-controller") != "kubernetes.io/job-controller":
            return None
        selector = f"controller-uid={job['metadata']['uid']}"
        pods = self.client.list("pods", namespace, labelSelector=selector)
        if job["metadata"].get("deletionTimestamp") or _is_over(job):
            for pod in pods:
                if is_finished(pod) or pod["metadata"].get("deletionTimestamp"):
                    self._release(pod)
            return None
        count = self._counts.setdefault(job["metadata"]["uid"], _Count())
        failure = self._count(job, pods, count)
        active = [
            pod for pod in pods if not is_finished(pod) and not pod["metadata"].get("deletionTimestamp")
        ]
        terminating = [pod for pod in pods if not is_finished(pod) and pod not in active]
        status = self._status(job, count, active, terminating)
        failure = failure or self._limit(job, count, status, active)
        again = None
        if failure or has_condition(job, "FailureTarget"):
            self._fail(job, status, failure, active, terminating)
        elif self._is_complete(job, count):
            self._complete(status, active, terminating)
        elif spec.get("suspend"):
            self._suspend(job, status, count, active)
        else:
            again = self._make_pods(job, status, count, active, terminating)
        for one in active if failure or self._is_complete(job, count) else ():
            self._delete(one)
        if status != (job.get("status") or {}):
            self.client.patch(
                "jobs", namespace, name, {"status": _changes(job.get("status") or {}, status)}, "status"
            )
        return again

    def _count(self, job: Object, pods: list[Object], count: _Count) -> tuple[str, str] | None:
        """Count pods that have ended; the reason and sentence of a failure of the Job."""
        failure = None
        waits = "podFailurePolicy" in job["spec"] or job["spec"].get("podReplacementPolicy") == "Failed"
        for pod in pods:
            uid = pod["metadata"]["uid"]
            ended = is_finished(pod) or (pod["metadata"].get("deletionTimestamp") and not waits)
            if not ended:
                continue
            if uid not in count.seen:
                count.seen.add(uid)
                index = _index(pod)
                if pod["status"].get("phase") == "Succeeded":
                    count.succeeded.add(index)
                elif uid not in count.ended_by_suspension:
                    count.pause(job, index)
                    action, why = failure_action(job, pod) if is_finished(pod) else ("Count", "")
                    if action == "FailJob":
                        failure = ("PodFailurePolicy", why)
                    if action != "Ignore":
                        count.failed += 1
            self._release(pod)
        return failure

    def _limit(
        self, job: Object, count: _Count, status: Object, active: list[Object]
    ) -> tuple[str, str] | None:
        spec = job["spec"]
        limit = spec.get("backoffLimit", 6)
        if count.failed > limit or _restarts(active) >= max(1, limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        seconds = spec.get("activeDeadlineSeconds")
        if seconds and status.get("startTime") and _age(status["startTime"]) >= seconds:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    def _is_complete(self, job: Object, count: _Count) -> bool:
        return len(count.succeeded) >= job["spec"].get("completions", 1) or is_enough(job, count.succeeded)

    def _status(self, job: Object, count: _Count, active: list[Object], terminating: list[Object]) -> Object:
        status: Object = copy.deepcopy(job.get("status") or {})
        status.setdefault("conditions", [])
        if not status.get("startTime") and not job["spec"].get("suspend"):
            status["startTime"] = now()
        numbers = {
            "active": len(active),
            "terminating": len(terminating),
            "ready": sum(has_condition(pod, "Ready") for pod in active),
            "succeeded": len(count.succeeded),
            "failed": count.failed,
        }
        for name, number in numbers.items():
            status[name] = number
            if not number:
                del status[name]
        if count.succeeded and job["spec"].get("completionMode") == "Indexed":
            status["completedIndexes"] = format_indexes(count.succeeded)
        return status

    def _fail(
        self,
        job: Object,
        status: Object,
        failure: tuple[str, str] | None,
        active: list[Object],
        terminating: list[Object],
    ) -> None:
        """First the target, then the end, when all pods have ended."""
        if not has_condition(job, "FailureTarget"):
            assert failure
            status["conditions"].append(condition("FailureTarget", True, *failure))
            self.cluster.record(event(job, failure[0], failure[1], warning=True, component="job-controller"))
        for pod in active:
            self._delete(pod)
        if not active and not terminating:
            target = next(one for one in status["conditions"] if one["type"] == "FailureTarget")
            status["conditions"].append(condition("Failed", True, target["reason"], target["message"]))

    def _complete(self, status: Object, active: list[Object], terminating: list[Object]) -> None:
        if not any(one["type"] == "SuccessCriteriaMet" for one in status["conditions"]):
            reason = ("CompletionsReached", "Reached expected number of succeeded pods")
            status["conditions"].append(condition("SuccessCriteriaMet", True, *reason))
        if not active and not terminating:
            met = next(one for one in status["conditions"] if one["type"] == "SuccessCriteriaMet")
            status["conditions"].append(condition("Complete", True, met["reason"], met["message"]))
            status["completionTime"] = now()

    def _suspend(self, job: Object, status: Object, count: _Count, active: list[Object]) -> None:
        for pod in active:
            count.ended_by_suspension.add(pod["metadata"]["uid"])
            self._delete(pod)
        status.pop("startTime", None)
        if not has_condition(job, "Suspended"):
            _replace(status, condition("Suspended", True, "JobSuspended", "Job suspended"))
            self.cluster.record(event(job, "Suspended", "Job suspended", component="job-controller"))

    def _make_pods(
        self, job: Object, status: Object, count: _Count, active: list[Object], terminating: list[Object]
    ) -> float | None:
        """Make missing pods; seconds until more may be made."""
        if has_condition(job, "Suspended"):
            _replace(status, condition("Suspended", False, "JobResumed", "Job resumed"))
            self.cluster.record(event(job, "Resumed", "Job resumed", component="job-controller"))
        spec = job["spec"]
        busy = {_index(pod) for pod in [*active, *terminating]}
        wanted = [
            index
            for index in range(spec.get("completions", 1))
            if index not in busy and index not in count.succeeded
        ][: max(0, spec.get("parallelism", 1) - len(active))]
        later = [index for index in wanted if count.not_before.get(index, 0) > time.monotonic()]
        for index in wanted:
            if index in later:
                continue
            try:
                self.client.create("pods", job["metadata"]["namespace"], pod_of(job, index))
            except KubeError as error:
                if error.status not in (403, 422):
                    raise
                message = f"Error creating: {str(error).partition(': ')[2]}"
                self.cluster.record_once(
                    event(job, "FailedCreate", message, warning=True, component="job-controller")
                )
                return 0.5
            status["active"] = status.get("active", 0) + 1
        waits = [count.not_before[index] - time.monotonic() for index in later]
        if seconds := spec.get("activeDeadlineSeconds"):
            waits.append(max(0.1, seconds - _age(status["startTime"])))
        return max(0.02, min(waits)) if waits else None

    def _release(self, pod: Object) -> None:
        """Remove the finalizer: the pod has been counted."""
        left = [one for one in pod["metadata"].get("finalizers") or () if one != TRACKED]
        if len(left) < len(pod["metadata"].get("finalizers") or ()):
            metadata = pod["metadata"]
            patch = {"metadata": {"finalizers": left or None, "uid": metadata["uid"]}}
            try:
                self.client.patch("pods", metadata["namespace"], metadata["name"], patch)
            except KubeError as error:
                if error.status not in (404, 409):
                    raise

    def _delete(self, pod: Object) -> None:
        if not pod["metadata"].get("deletionTimestamp"):
            self.client.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])


def pod_of(job: Object, index: int) -> Object:
    """The pod for an index, as the controller makes it."""
    name = job["metadata"]["name"]
    template = copy.deepcopy(job["spec"]["template"])
    metadata = template.get("metadata") or {}
    labels = {
        **(metadata.get("labels") or {}),
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
    }
    pod: Object = {
        "metadata": {
            "generateName": f"{name}-",
            "labels": labels,
            "annotations": dict(metadata.get("annotations") or {}),
            "finalizers": [TRACKED],
            "ownerReferences": owned_by({"apiVersion": "batch/v1", "kind": "Job", **job}),
        },
        "spec": template["spec"],
    }
    if job["spec"].get("completionMode") == "Indexed":
        pod["metadata"]["generateName"] = f"{name}-{index}-"
        pod["metadata"]["annotations"][INDEX] = labels[INDEX] = str(index)
        pod["spec"]["hostname"] = f"{name}-{index}"
        reference = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
        for container in [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]:
            env = container.setdefault("env", [])
            if all(one["name"] != "JOB_COMPLETION_INDEX" for one in env):
                env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": reference})
    return pod


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, 0))


def _is_over(job: Object) -> bool:
    return has_condition(job, "Complete") or has_condition(job, "Failed")


def _restarts(pods: list[Object]) -> int:
    """How often kubelets have started containers of ``pods`` again in place."""
    return sum(one["restartCount"] for pod in pods for one in pod["status"].get("containerStatuses") or ())


def _age(at: str) -> float:
    return time.time() - datetime.datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()


def _replace(status: Object, new: Object) -> None:
    status["conditions"] = [one for one in status["conditions"] if one["type"] != new["type"]] + [new]


def _changes(old: Object, new: Object) -> Object:
    """A merge patch from one status to another."""
    gone = dict.fromkeys(name for name in old if name not in new)
    return {**gone, **{name: value for name, value in new.items() if old.get(name) != value}}
