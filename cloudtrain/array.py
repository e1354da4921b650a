"""Arrays: many jobs with one description, which differ in some fields."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cloudtrain._display.live import table_bundle
from cloudtrain.errors import InDoubt
from cloudtrain.history.parameters import facts_of_job
from cloudtrain.index import IndexEntry, add_job, remove_submission
from cloudtrain.job import Job
from cloudtrain.platforms import Arrays, Platform
from cloudtrain.spec import check_job_name, new_job_name
from cloudtrain.spec.elements import Element, check_array_name, element_name, with_element
from cloudtrain.submission import Submission, prepare

LONGEST_BASE = 36
"""The most characters of a generated name before the time and the number of the element."""


class Jobs(list[Job]):
    """Jobs in the order of their array. A notebook shows them as a table."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return table_bundle([(job.platform, job.name) for job in self])


@dataclass(frozen=True)
class JobArray:
    """Jobs that are packed and rendered; nothing is uploaded or started yet."""

    name: str
    elements: Sequence[Element]
    submissions: Sequence[Submission]
    """One for each element, in order."""
    script: str = ""
    """The script that starts all jobs on a platform with arrays; empty where each job is submitted by itself."""

    @property
    def warnings(self) -> list[str]:
        """The warnings about the jobs and their source, without duplicates."""
        return list(
            dict.fromkeys(warning for submission in self.submissions for warning in submission.warnings)
        )

    def upload(self) -> None:
        """Upload sources and local data, unless they are there already. Raises StorageError."""
        for submission in self.submissions:
            submission.upload()

    def start(self, started: Callable[[Job], object] = lambda job: None) -> Jobs:
        """Hand the jobs to their platform. Everything must have been uploaded.

        Args:
            started: called with each job that the platform has accepted.

        Raises:
            PlatformError: the platform refuses a job. With a `script`, no job has started then; without one, the
                jobs before it have.
        """
        if self.script:
            jobs = self._start_together()
            for job in jobs:
                started(job)
            return jobs
        jobs = Jobs()
        for submission in self.submissions:
            jobs.append(submission.start())
            started(jobs[-1])
        return jobs

    def _start_together(self) -> Jobs:
        first, now = self.submissions[0], time.time()
        platform = first.platform
        assert isinstance(platform, Arrays)
        jobs = Jobs(Job(submission.request.job_name, platform) for submission in self.submissions)
        listed = self.submissions if first.indexed else ()
        numbers = [
            add_job(IndexEntry(one.request.job_name, platform.name, now), *facts_of_job(one.job))
            for one in listed
        ]
        try:
            platform.submit_array(self.script, [submission.request for submission in self.submissions])
        except InDoubt:
            raise
        except Exception:
            for number in numbers:
                remove_submission(number)
            raise
        finally:
            if first.caches:
                first.caches.close()
        return jobs


def prepare_array(
    fields: Mapping[str, Any],
    elements: Sequence[Element],
    platform: Platform | None = None,
    session: Any = None,
    *,
    submits: bool = False,
    defaults: Mapping[str, Any] | None = None,
) -> JobArray:
    """Validate, pack and render the jobs of an array: ``fields`` with each of ``elements``.

    The jobs are called ``NAME-0``, ``NAME-1`` and so on, where NAME is the ``job_name`` of ``fields``.

    Raises:
        InvalidJob, InvalidSource, PlatformError: as in `cloudtrain.submission.prepare`; or the platform cannot run
            the elements as one array.
    """
    name = fields.get("job_name") or _new_name(fields)
    check_job_name(name)
    check_array_name(name, len(elements))
    submissions: list[Submission] = []
    for number, element in enumerate(elements):
        changed = {**with_element(fields, element), "job_name": element_name(name, number)}
        found = prepare(changed, platform, session, submits=submits and not number, defaults=defaults)
        if submissions:
            if found.caches:  # the first one holds the cache for all: there may be thousands
                found.caches.close()
            found = replace(found, caches=None, platform=_same(submissions, found))
        submissions.append(found)
    first = submissions[0]
    together = isinstance(first.platform, Arrays) and all(
        one.platform is first.platform for one in submissions
    )
    script = ""
    if together:
        assert isinstance(first.platform, Arrays)
        script = first.platform.render_array(name, [one.job for one in submissions])
    return JobArray(name, elements, submissions, script)


def _same(submissions: Sequence[Submission], new: Submission) -> Platform:
    """The platform object of an earlier job on the same platform, so that connections are reused."""
    known = (one.platform for one in submissions if one.platform.name == new.platform.name)
    return next(known, new.platform)


def _new_name(fields: Mapping[str, Any]) -> str:
    base = fields.get("base_job_name") or Path(str(fields.get("entry_point") or "job")).stem
    return new_job_name(str(base)[:LONGEST_BASE])
