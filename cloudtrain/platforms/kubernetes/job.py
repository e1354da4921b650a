"""One job of a cluster, described from memory while a client waits for it.

Calls that describe a job, list it or read its logs write nothing to the cluster. `KubernetesJob.upkeep`, for a client
that waits for the job, does, and so do `stop` and `preempt`. A client stores the final descriptions that it has seen,
because a main object is deleted when its TTL is over.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudtrain._system.files import read_regular
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import JobNotFound, PlatformError
from cloudtrain.observe import Summary
from cloudtrain.observe.stacks import StackDump
from cloudtrain.platforms.base import JobDescription, JobState
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden, KubeNotFound
from cloudtrain.platforms.kubernetes.api.kinds import Kind
from cloudtrain.platforms.kubernetes.host_samples import HostSamples
from cloudtrain.platforms.kubernetes.labels import ENDING, FAILED
from cloudtrain.platforms.kubernetes.life.describe import (
    Look,
    StateLog,
    describe,
    leaders_verdict,
    look_at,
    pods_of,
    settings_of,
)
from cloudtrain.platforms.kubernetes.life.failure import SIGTERM_CODE, deleted, leaders_ending
from cloudtrain.platforms.kubernetes.life.job_watch import JobWatch
from cloudtrain.platforms.kubernetes.life.objects import (
    Object,
    Owner,
    Snapshot,
    annotation,
    name_of,
    text,
    uid_of,
)
from cloudtrain.platforms.kubernetes.life.pods import current, newest
from cloudtrain.platforms.kubernetes.life.stop import end, insist, preempt, replaced, request_stacks, stop
from cloudtrain.platforms.kubernetes.logs import LastLinesOf, RunningSummary, WholeSummary
from cloudtrain.platforms.supervised.job_summary import to_description
from cloudtrain.runtime.supervisor.event_summary import UNREADABLE, from_cached, to_cached
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import write_file

TEND_SECONDS = 2.0
LARGEST = 1 << 20
REPORT_SIZE = 8192
"""The maximum size of a report in an annotation, in bytes."""
GONE = "its object is gone: deleted, or its time to live (platform_options.ttl) is over"


class KubernetesJob:
    """A job of a cluster: its location, its objects, its logs, and how to end it. Threads may share it.

    Args:
        kind: the kind of its main object.
        uid: the uid of its main object, if this client created it. Another object of the same name is described, but
            never ended.
    """

    def __init__(self, api: Api, kind: Kind, name: str, uid: str = "", watch: JobWatch | None = None) -> None:
        self.api, self.kind, self.name, self.uid = api, kind, name, uid
        self.watch = watch = watch or JobWatch(api, kind, name)
        self._whole = WholeSummary(api, watch)
        self._samples = HostSamples(api)
        self._recent = RunningSummary(api)
        self._last_lines = LastLinesOf(api, watch)
        self._lock = threading.Lock()
        self._log = StateLog()
        self._last: Snapshot | None = None
        self._final: JobDescription | None = None

    def describe(self) -> JobDescription:
        """The job as it is now. Raises JobNotFound, PlatformError."""
        look = self._look()
        if look is None:
            return self._gone()
        status = look.verdict.status
        is_reported = status.is_final and leaders_ending(look.owner, newest(look.pods))
        summary = None if status == JobStatus.PENDING or is_reported else self._recent(look.objects)
        found = describe(look, summary=summary, command=command_for(self.api, self.kind, look.owner.found))
        if status.is_final and (self._final is None or self._final.status != status):
            remember(found, self._place)
        self._final = found if status.is_final else None
        return found

    def summary(self) -> Summary:
        """The summary of the leader's events, with the samples and ranks of all hosts. Raises PlatformError."""
        summary, objects = self._whole(), self.watch.snapshot()
        summary.samples |= self._samples(objects)
        summary.course.hosts |= self._samples.ranks(objects)
        return summary

    def require(self) -> None:
        """Raises JobNotFound if the job was deleted, with its pods and their logs."""
        if self._objects() is None:
            raise self._not_found()

    def states(self) -> list[JobState]:
        """All states so far. Raises JobNotFound, PlatformError."""
        if self._look() is not None:
            with self._lock:
                return list(self._log.states)
        found = self._gone()
        reason = found.failure.summary() if found.failure else found.reason
        with self._lock:
            return self._log.end(JobState(found.ended_at or self.api.now(), str(found.status), reason))

    def stop(self) -> None:
        """Stop the job with its grace; does nothing if it has ended. Raises JobNotFound, PlatformError."""
        try:
            objects = self._objects()
        except KubeForbidden:  # the user may not list pods, which a stop does not need
            objects = None
            with contextlib.suppress(KubeNotFound):
                objects = Snapshot(self.api.get(self.kind, self.name))
        if objects is None:
            if self._final or self._last:
                return
            raise self._not_found()
        self._refuse_another(objects)
        stop(self.api, self.kind, objects)

    def was_interrupted(self) -> bool:
        """See `Withdrawal`."""
        return self._unreleased() is not None

    def withdraw(self) -> bool:
        """See `Withdrawal`: a main object that was never released is deleted."""
        objects = self._unreleased()
        if objects is not None:
            stop(self.api, self.kind, objects)
        return objects is not None

    def _unreleased(self) -> Snapshot | None:
        """The objects of the job if its main object was never released. Raises JobNotFound, PlatformError."""
        objects = self._objects(newest=True)
        if objects is None:
            raise self._not_found()
        self._refuse_another(objects)
        return objects if Owner(objects.owner or {}).is_unreleased else None

    def preempt(self) -> None:
        """Evict the job's pods. Raises JobNotFound; PlatformError if no pod runs, or they are protected."""
        objects = self._objects(newest=True)
        if objects is None:
            raise self._not_found()
        self._refuse_another(objects)
        preempt(self.api, self.name, current(pods_of(objects)))

    def cost_terms(self) -> dict[str, Any]:
        """The field ``cost_terms`` of a request; empty if the job was deleted."""
        objects = self._objects()
        if not objects or not objects.owner:
            return {}
        return {"cost_terms": settings_of(Owner(objects.owner)).get("cost_terms")}

    def request_stacks(self, *, native: bool) -> None:
        """Request the stacks of all ranks from the leader. Raises JobNotFound, PlatformError."""
        objects = self._objects(newest=True)
        if objects is None:
            raise self._not_found()
        request_stacks(self.api, self.name, current(pods_of(objects)), native=native)

    def last_stacks(self) -> StackDump | None:
        """The stacks that were captured last, according to the leader's log. Raises PlatformError."""
        objects = self._objects()
        summary = self._recent(objects) if objects else None
        return summary.stacks.last if summary else None

    def _refuse_another(self, objects: Snapshot) -> None:
        """Raises PlatformError if another client has since created a job of this name."""
        if self._is_another(objects):
            raise replaced(self.name)

    def _is_another(self, objects: Snapshot) -> bool:
        return bool(self.uid) and uid_of(objects.owner) != self.uid

    def _objects(self, *, newest: bool = False) -> Snapshot | None:
        """The objects of the job; None if its main object does not exist, or not any longer."""
        objects = self.watch.snapshot(newest=newest)
        if objects.owner is None or name_of(objects.owner) != self.name:  # it names files on this machine
            if self._last:  # it may have ended since the last look
                seen = objects.deleted if uid_of(self._last.owner) == uid_of(objects.deleted) else None
                last = objects if objects.pods or objects.gone else self._last
                self._last = replace(last, owner=seen or self._last.owner, deleted=seen)
            return None
        if self._last and self._last.owner and uid_of(self._last.owner) != uid_of(objects.owner):
            self._log, self._final = StateLog(), None  # another job of the same name
        self._last = objects
        return objects

    def _look(self) -> Look | None:
        objects = self._objects()
        if objects is None:
            return None
        look = look_at(objects, self.api.now(), self._last_lines)
        with self._lock:
            self._log.update(look)
        return look

    @contextlib.contextmanager
    def upkeep(self) -> Iterator[None]:
        """While the body waits: give the job up if it cannot start, and record the ending of a stopped job."""
        over = threading.Event()
        threading.Thread(target=self._tend_until, args=(over,), name="cloudtrain-job", daemon=True).start()
        try:
            yield
            self._tend()  # the last pods may have ended since
        finally:
            over.set()

    def _tend_until(self, over: threading.Event) -> None:
        while not over.wait(TEND_SECONDS):
            self._tend()

    def _tend(self) -> None:
        with contextlib.suppress(PlatformError):
            look = self._look()
            if look is not None and not self._is_another(look.objects):
                self._give_up(look)
                self._keep_ending(look)
                insist(self.api, self.kind, look.objects, current(look.pods), look.now)

    def _gone(self) -> JobDescription:
        """The description of a job that this client has seen, but whose main object was deleted."""
        if self._final is None and self._last is not None:
            self._final = self._ended_by_deletion(look_at(self._last, self.api.now()))
            remember(self._final, self._place)
        found = self._final or recall(self.name, self._place)
        if found is None:
            raise self._not_found()
        return found

    def _ended_by_deletion(self, look: Look) -> JobDescription:
        if not look.verdict.status.is_final and (verdict := leaders_verdict(look)):
            look = replace(look, verdict=verdict)
        found = describe(look, command=command_for(self.api, self.kind, look.owner.found))
        if found.status.is_final:
            return found
        found = replace(found, exit_code=SIGTERM_CODE, ended_at=look.now, phase=None)
        if look.owner.stopped_at is not None or look.owner.is_unreleased:
            return replace(found, status=JobStatus.STOPPED)
        failure = deleted(look.owner, look.now, seen=look.objects.deleted is not None)
        return replace(found, status=JobStatus.FAILED, reason="", failure=failure)

    @property
    def _place(self) -> str:
        return f"{self.api.context}/{self.api.namespace}/{self.kind.resource}"

    def _not_found(self) -> JobNotFound:
        return JobNotFound(
            f"there is no {self.kind.kind} {self.name} in namespace {self.api.namespace}"
            + (f" of context {self.api.context}" if self.api.context else ""),
            hint="It was deleted, or its time to live after the end (platform_options.ttl) is over. Its outputs and "
            "checkpoints remain where they were uploaded.",
        )

    def _give_up(self, look: Look) -> None:
        """End a job that cannot start, because it would hold its nodes forever."""
        verdict = look.verdict
        if verdict.why is None or not verdict.why.is_hopeless(look.now):
            return
        report = FailureReport(FailureClass.PLATFORM, verdict.why.sentence, verdict.why.advice, time=look.now)
        note = {FAILED: report.shortened(REPORT_SIZE).to_json()}
        with contextlib.suppress(PlatformError):
            end(self.api, self.kind, look.owner.found, look.objects.workload, note)

    def _keep_ending(self, look: Look) -> None:
        """Record the ending of a stopped job in its main object: Kubernetes deletes the pods that have it."""
        owner = look.owner
        if owner.stopped_at is None or annotation(owner.found, ENDING):
            return
        ending = leaders_ending(owner, newest(look.pods))
        if ending:
            patch = {"metadata": {"uid": uid_of(owner.found), "annotations": {ENDING: ending.to_json()}}}
            with contextlib.suppress(PlatformError):
                self.api.patch(self.kind, self.name, patch)


def command_for(api: Api, kind: Kind, owner: Object | None) -> str:
    """The kubectl command that describes a main object."""
    context = f" --context {shlex.quote(api.context)}" if api.context else ""
    namespace = text(owner, "metadata", "namespace") or api.namespace
    name = shlex.quote(name_of(owner or {}))
    return f"kubectl{context} --namespace {shlex.quote(namespace)} describe {kind.resource} {name}"


def remember(description: JobDescription, place: str) -> None:
    """Store the description of a job that has ended at ``place``: other places may have a job of the same name."""
    values = description.to_dict()
    with contextlib.suppress(OSError):  # on a full disk, leave it to the next caller
        write_file(_path(description.name), to_cached({"place": place, "description": values}))


def recall(job_name: str, place: str) -> JobDescription | None:
    """The stored description of a job whose end this client has seen; None if there is none."""
    with contextlib.suppress(OSError, *UNREADABLE):
        found = from_cached(read_regular(_path(job_name), LARGEST))
        if found and found["place"] == place:
            description = to_description(found["description"])
            return replace(description, details={**description.details, "object": GONE})
    return None


def forget(job_name: str) -> None:
    """Delete the stored description, because the next job of this name is another one."""
    with contextlib.suppress(OSError):
        _path(job_name).unlink(missing_ok=True)


def _path(job_name: str) -> Path:
    return state_home() / "ended" / "kubernetes" / f"{job_name}.json"
