"""Plays the operators of JobSet, Kubeflow Trainer and MPIJob, with the objects that `kube_operators` says they make."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import yaml
from custom_resources import CRDS, PLURALS
from kube_client import KubeClient, KubeError
from kube_cluster import KubeCluster
from kube_controller import Controller
from kube_objects import has_condition, is_finished, now
from kube_operators import (
    TORCH_DISTRIBUTED,
    jobset_after_failure,
    jobset_jobs,
    jobset_service,
    mpijob_launcher,
    mpijob_objects,
    mpijob_workers,
    trainjob_jobset,
)

Object = dict[str, Any]

POLL = 0.2
"""Seconds between two looks at what an object controls."""
RESTARTS = "jobset.sigs.k8s.io/restart-attempt"
PLURAL_OF = {"Service": "services", "ConfigMap": "configmaps", "Secret": "secrets", "Pod": "pods"} | PLURALS


def suspension(suspended: bool) -> Object:
    """A patch that suspends a Job, or resumes it. The old server drops ``suspend``, and reports no change of it."""
    return {
        "metadata": {"annotations": {"test/suspended": str(suspended)}},
        "spec": {"suspend": suspended},
    }


class OperatorController(Controller):
    """A controller that looks again and again until the object has ended."""

    def sync(self, item: Object) -> float | None:
        space, name = item["metadata"]["namespace"], item["metadata"]["name"]
        found = self.client.get(self.plural, space, name)
        if found["metadata"].get("deletionTimestamp") or self._is_over(found):
            return None
        self.work(found)
        return POLL

    def work(self, item: Object) -> None:
        raise NotImplementedError

    def _is_over(self, item: Object) -> bool:
        return any(has_condition(item, kind) for kind in ("Completed", "Complete", "Succeeded", "Failed"))

    def make(self, made: Object, owner: Object) -> None:
        plural = PLURAL_OF.get(made["kind"], f"{made['kind'].lower()}s")
        with contextlib.suppress(KubeError):  # it is there
            self.client.create(plural, owner["metadata"]["namespace"], made)

    def set_status(self, item: Object, **status: Any) -> None:
        metadata = item["metadata"]
        self.client.patch(self.plural, metadata["namespace"], metadata["name"], {"status": status}, "status")

    def conditions(
        self, item: Object, kind: str, reason: str, message: str, status: str = "True"
    ) -> list[Object]:
        others = [one for one in (item.get("status") or {}).get("conditions", []) if one["type"] != kind]
        new = {"type": kind, "status": status, "reason": reason, "message": message}
        return [*others, {**new, "lastTransitionTime": now()}]


class JobSetController(OperatorController):
    plural = "jobsets"
    kind = "JobSet"

    def work(self, item: Object) -> None:
        space, status = item["metadata"]["namespace"], item.get("status") or {}
        restarts, counted = status.get("restarts", 0), status.get("restartsCountTowardsMax", 0)
        suspended = item["spec"].get("suspend", False)
        self.make(jobset_service(item), item)
        for wanted in jobset_jobs(item, restarts):
            found = self.client.find("jobs", space, wanted["metadata"]["name"])
            if found is None:
                wanted["spec"]["suspend"] = suspended
                self.make(wanted, item)
            elif found["metadata"]["labels"][RESTARTS] != str(restarts):
                if not found["metadata"].get("deletionTimestamp"):
                    self.client.delete(
                        "jobs", space, wanted["metadata"]["name"], propagationPolicy="Foreground"
                    )
            elif has_condition(found, "Complete"):
                done = self.conditions(item, "Completed", "AllJobsCompleted", "jobset completed successfully")
                self.set_status(item, conditions=done, terminalState="Completed")
            elif has_condition(found, "Failed"):
                self._failed(item, found, restarts, counted)
            elif bool(found["spec"].get("suspend")) != suspended:
                self.client.patch("jobs", space, wanted["metadata"]["name"], suspension(suspended))

    def _failed(self, item: Object, job: Object, restarts: int, counted: int) -> None:
        failed = next(one for one in job["status"]["conditions"] if one["type"] == "Failed")
        action, counts = jobset_after_failure(item, failed["reason"], counted)
        if action == "restart":
            self.set_status(item, restarts=restarts + 1, restartsCountTowardsMax=counted + counts)
            return
        message = (
            f"jobset failed due to one or more job failures (first failed job: {job['metadata']['name']})"
        )
        reason = "ReachedMaxRestarts" if item["spec"].get("failurePolicy") else "FailedJobs"
        self.set_status(
            item, conditions=self.conditions(item, "Failed", reason, message), terminalState="Failed"
        )


class TrainJobController(OperatorController):
    plural = "trainjobs"
    kind = "TrainJob"

    def work(self, item: Object) -> None:
        space, name = item["metadata"]["namespace"], item["metadata"]["name"]
        wanted = trainjob_jobset(item, TORCH_DISTRIBUTED)
        found = self.client.find("jobsets", space, name)
        if found is None:
            self.make(wanted, item)
            return
        suspended = item["spec"].get("suspend", False)
        if found["spec"].get("suspend", False) != suspended:
            self.client.patch("jobsets", space, name, {"spec": {"suspend": suspended}})
        for theirs, ours in (("Completed", "Complete"), ("Failed", "Failed")):
            if has_condition(found, theirs):
                one = next(one for one in found["status"]["conditions"] if one["type"] == theirs)
                self.set_status(item, conditions=self.conditions(item, ours, one["reason"], one["message"]))


class MpiJobController(OperatorController):
    plural = "mpijobs"
    kind = "MPIJob"

    def work(self, item: Object) -> None:
        space, name = item["metadata"]["namespace"], item["metadata"]["name"]
        suspended = item["spec"]["runPolicy"].get("suspend", False)
        for made in mpijob_objects(item, space):
            self.make(made, item)
        workers = mpijob_workers(item)
        for pod in workers:
            if suspended:
                self.client.delete("pods", space, pod["metadata"]["name"])
            elif self.client.find("pods", space, pod["metadata"]["name"]) is None:
                self.make(pod, item)
        launcher = self.client.find("jobs", space, f"{name}-launcher")
        if launcher is None:
            made = mpijob_launcher(item)
            made["spec"]["suspend"] = suspended
            self.make(made, item)
        elif bool(launcher["spec"].get("suspend")) != suspended:
            self.client.patch("jobs", space, f"{name}-launcher", suspension(suspended))
        elif has_condition(launcher, "Complete"):
            self._end(
                item,
                workers,
                "Succeeded",
                "MPIJobSucceeded",
                f"MPIJob {space}/{name} successfully completed.",
            )
        elif has_condition(launcher, "Failed"):
            failed = next(one for one in launcher["status"]["conditions"] if one["type"] == "Failed")
            self._end(item, workers, "Failed", failed["reason"], failed["message"])

    def _end(self, item: Object, workers: list[Object], kind: str, reason: str, message: str) -> None:
        space = item["metadata"]["namespace"]
        for pod in workers:  # cleanPodPolicy: Running
            found = self.client.find("pods", space, pod["metadata"]["name"])
            if found and not is_finished(found):
                self.client.delete("pods", space, pod["metadata"]["name"])
        conditions = self.conditions(item, kind, reason, message)
        self.set_status(item, conditions=conditions, completionTime=now())


CONTROLLERS = (JobSetController, TrainJobController, MpiJobController)


@contextlib.contextmanager
def operators(cluster: KubeCluster, *kinds: str) -> Iterator[None]:
    """The custom resources of ``kinds``, such as ``JobSet``, with their operators. They are removed afterwards."""
    controllers = [one(cluster) for one in CONTROLLERS if one.kind in kinds]
    names = [_install(cluster.bench, PLURALS[kind]) for kind in kinds]
    for controller in controllers:
        controller.start()
    yield
    for controller in controllers:
        controller.close()
    for name in names:
        cluster.bench.delete("customresourcedefinitions", None, name)
    while any(cluster.bench.find("customresourcedefinitions", None, name) for name in names):
        time.sleep(0.05)


def _install(bench: KubeClient, plural: str) -> str:
    definition = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    name: str = definition["metadata"]["name"]
    bench.create("customresourcedefinitions", None, definition)
    while not has_condition(bench.get("customresourcedefinitions", None, name), "Established"):
        time.sleep(0.05)
    return name
