"""The kind of a job's main object is chosen by what the cluster has, and the reason is reported."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.kubernetes.api.kinds import JOB_SET, MPI_JOB, TRAIN_JOB, Kind
from cloudtrain.platforms.kubernetes.resolve import choose, resolve
from cloudtrain.spec import TrainingJob


class Cluster:
    """The answers of a cluster."""

    context, namespace = "test", "team"

    def __init__(
        self, *kinds: Kind, version: str = "", may_create: bool = True, answers: bool = True
    ) -> None:
        self.kinds, self.version, self.may_create, self.answers = kinds, version, may_create, answers

    def has(self, kind: Kind) -> bool:
        if not self.answers:
            raise PlatformError("no answer from https://10.0.0.1\nmore")
        return kind in self.kinds and self.version in ("", kind.version)

    def allowed(self, verb: str, kind: Kind, name: str = "") -> bool:
        assert (verb, kind) == ("create", JOB_SET)
        return self.may_create


@pytest.mark.parametrize(
    ("cluster", "rendering", "why"),
    [
        (Cluster(), "job", "the cluster has no JobSet"),
        (Cluster(JOB_SET), "jobset", "starts all hosts again together"),
        (Cluster(JOB_SET, TRAIN_JOB), "jobset", "rendering: trainjob is possible, too"),
        (Cluster(MPI_JOB, TRAIN_JOB), "job", "rendering: trainjob or mpijob is possible, too"),
        (Cluster(JOB_SET, may_create=False), "job", "you may not create jobsets.jobset.x-k8s.io"),
        (Cluster(JOB_SET, version="v2"), "job", "the cluster has no JobSet"),
        (
            Cluster(JOB_SET, answers=False),
            "job",
            r"cannot be asked for operators \(no answer from https://10.0.0.1\)",
        ),
        (None, "job", "no cluster is configured"),
    ],
)
def test_the_choice(cluster: Cluster | None, rendering: str, why: str) -> None:
    choice = choose("auto", cluster)
    assert choice.rendering == rendering
    assert re.search(why, choice.why)


@pytest.mark.parametrize("rendering", ["jobset", "trainjob", "mpijob"])
def test_a_kind_that_the_cluster_does_not_have(rendering: str) -> None:
    with pytest.raises(InvalidJob, match=r"the cluster has no \w+ of the version") as caught:
        choose(rendering, Cluster())
    assert "https://" in caught.value.hint
    assert choose(rendering, None).rendering == rendering
    assert choose(rendering, Cluster(answers=False)).why == "platform_options.rendering asks for it"


@pytest.mark.parametrize(("length", "rendering"), [(48, "jobset"), (49, "job"), (61, "job")])
def test_a_long_name_is_a_job(length: int, rendering: str) -> None:
    """A JobSet adds more to the names of pods than a Job does."""
    cluster: Any = Cluster(JOB_SET)
    fields = {"job_name": "j" * length, "entry_point": "train.py", "image_uri": "image:1"}
    options = {"discard_outputs": True}
    job = resolve(
        TrainingJob.from_dict({**fields, "platform_options": options}), lambda _context, _namespace: cluster
    )
    assert job.platform_options["rendering"] == rendering
    assert ("too long" in job.platform_options["rendering_reason"]) is (rendering == "job")
