"""The objects of a job on a real API server: made together or not at all, owned by one, and accepted by kubectl."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube_fixtures import Namespace, new_namespace
from kube_schemas import validate_everywhere

from cloudtrain.errors import CloudtrainError, JobExists
from cloudtrain.job import Job
from cloudtrain.platforms.kubernetes import KubernetesPlatform
from cloudtrain.platforms.kubernetes.places import Places
from cloudtrain.platforms.kubernetes.submit import with_files
from cloudtrain.submission import Submission, prepare

OWNED = ("services", "configmaps", "secrets", "networkpolicies")


def prepared(folder: Path, **fields: Any) -> Submission:
    script = folder / "train.py"
    script.write_text("print('hello')\n")
    defaults = {"entry_point": str(script), "image_uri": "python:3.12", "platform": "kubernetes"}
    options = {"discard_outputs": True, **fields.pop("platform_options", {})}
    return prepare({**defaults, "platform_options": options, **fields}, defaults={})


def _owned_names(kubernetes: Namespace) -> list[str]:
    bench, space = kubernetes.bench, kubernetes.name
    return [
        f"{plural}/{item['metadata']['name']}"
        for plural in OWNED
        for item in bench.list(plural, space)
        if "cloudtrain/job" in (item["metadata"].get("labels") or {})
    ]


def _for_old_server(text: str) -> str:
    """The documents without the fields that this server does not have; the schemas of newer ones have checked them."""
    documents = list(yaml.safe_load_all(text))
    for field in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex"):
        del documents[-1]["spec"][field]
    return yaml.safe_dump_all(documents)


def test_a_job_owns_all_its_objects(
    kubernetes: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_real")
    submission = prepared(tmp_path, job_name="first", instance_count=2, secrets=["HF_TOKEN"])
    assert submission.request.body["namespace"] == kubernetes.name
    assert submission.request.body["context"]
    job = submission.submit()
    assert isinstance(job, Job)
    bench, space = kubernetes.bench, kubernetes.name
    main = bench.find("jobs", space, "first")
    assert main is not None
    names = ["configmaps/first", "configmaps/first-runtime", "networkpolicies/first", "secrets/first"]
    assert sorted(_owned_names(kubernetes)) == [*names, "services/first"]
    for plural in OWNED:
        for item in bench.list(plural, space):
            if "cloudtrain/job" in (item["metadata"].get("labels") or {}):
                assert [owner["uid"] for owner in item["metadata"]["ownerReferences"]] == [
                    main["metadata"]["uid"]
                ]
    secret = bench.find("secrets", space, "first")
    assert secret is not None
    values = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert values.pop("HF_TOKEN") == "hf_real"
    assert len(values.pop("job-secret")) >= 32
    assert values == {}
    place = Places().find("first")
    assert (place.kind.plural, place.api.namespace) == ("jobs", space)
    [listed] = KubernetesPlatform().list()
    assert (listed.name, listed.platform) == ("first", "kubernetes")
    assert not job.describe().status.is_final

    with pytest.raises(JobExists, match="already a Job first in the namespace") as refused:
        prepared(tmp_path, job_name="first").submit()
    assert f"kubectl delete -n {space} jobs.batch first" in refused.value.hint
    bench.create("configmaps", space, {"metadata": {"name": "settings"}})
    with pytest.raises(JobExists, match="already a ConfigMap settings") as refused:
        prepared(tmp_path, job_name="settings").submit()
    assert "does not belong to a job of cloudtrain" in refused.value.hint
    assert "delete" not in refused.value.hint
    assert bench.find("jobs", space, "first")["metadata"]["uid"] == main["metadata"]["uid"]  # type: ignore[index]

    subprocess.run(["kubectl", "delete", "job", "first"], check=True, capture_output=True)
    deadline = time.monotonic() + 60
    while _owned_names(kubernetes):
        assert time.monotonic() < deadline, _owned_names(kubernetes)
        time.sleep(0.1)


def test_nothing_is_left_of_a_job_that_is_refused(kubernetes: Namespace, tmp_path: Path) -> None:
    bench, space = kubernetes.bench, kubernetes.name
    bench.create("secrets", space, {"metadata": {"name": "taken"}})
    with pytest.raises(JobExists, match="already a Secret taken"):
        prepared(tmp_path, job_name="taken").submit()
    patch = {"spec": {"nodeSelector": {"not a label": "x"}}}
    with pytest.raises(CloudtrainError, match="not a label"):
        prepared(tmp_path, job_name="odd", platform_options={"pod_patch": patch}).submit()
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/configmaps": "0"}}}
    bench.create("resourcequotas", space, quota)
    deadline = time.monotonic() + 90
    while (
        "status" not in (found := bench.find("resourcequotas", space, "none") or {})
        or "hard" not in found["status"]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with pytest.raises(CloudtrainError, match="quota"):
        prepared(tmp_path, job_name="many").submit()
    while bench.list("jobs", space):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [name for name in _owned_names(kubernetes) if "taken" not in name] == []
    assert Places().tickets.read("many") is None


def test_nothing_is_left_of_a_job_whose_creation_was_not_answered(
    kubernetes: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has made the Job, and is away for all that the client asks next; or only for its second attempt."""
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.api.transport.RETRY_SECONDS", 2.0)
    faults = kubernetes.proxy.faults
    submission = prepared(tmp_path, job_name="lost")
    faults.lose_answer("POST .*/jobs")
    faults.refuse(".*/jobs", 503, times=1000)
    with pytest.raises(CloudtrainError, match=f"kubectl delete -n {kubernetes.name} jobs.batch lost"):
        submission.submit()
    faults.clear()
    subprocess.run(["kubectl", "delete", "job", "lost"], check=True, capture_output=True)

    submission = prepared(tmp_path, job_name="lost")
    faults.lose_answer("POST .*/jobs")
    faults.refuse("POST .*/jobs", 503, times=1000)
    with pytest.raises(CloudtrainError) as caught:
        submission.submit()
    assert "kubectl delete" not in str(caught.value)
    kubernetes.wait_until(lambda: not kubernetes.bench.list("jobs", kubernetes.name), "the deletion")


def test_kubectl_accepts_what_dry_run_prints(kubernetes: Namespace, tmp_path: Path) -> None:
    request = prepared(tmp_path, job_name="by-hand", instance_count=2).request
    validate_everywhere(request.body["objects"])
    apply = ["kubectl", "apply", "--server-side", "-f", "-"]
    done = subprocess.run(apply, input=_for_old_server(request.shown), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    applied = sorted(line.split()[0] for line in done.stdout.splitlines())
    assert applied == [
        "configmap/by-hand",
        "configmap/by-hand-runtime",
        "job.batch/by-hand",
        "networkpolicy.networking.k8s.io/by-hand",
        "service/by-hand",
    ]
    [command] = [line for line in request.shown.splitlines() if "kubectl create secret" in line]
    subprocess.run(["bash", "-ec", command.lstrip("# ")], check=True)
    secret = kubernetes.bench.find("secrets", kubernetes.name, "by-hand")
    assert secret is not None and list(secret["data"]) == ["job-secret"]


def test_kubectl_reads_the_same_text_as_was_written(kubernetes: Namespace, tmp_path: Path) -> None:
    values = [
        "1e-3",
        "y",
        "N",
        "0o17",
        "1_000",
        "0x1p-2",
        "on",
        "~",
        "2001-01-01",
        "1:30",
        " a\n\tb\n",
        "a\u2028b",
    ]
    environment = {f"V{index}": value for index, value in enumerate(values)} | {
        "N": "n",
        "y": "1.",
        "NO": ".5e3",
    }
    labels = {"example.com/no": "no", "y": "1e3"}
    request = prepared(
        tmp_path, job_name="typed", environment=environment, platform_options={"labels": labels}
    ).request
    local = ["kubectl", "annotate", "--local", "-o", "json", "-f", "-", "read=true"]
    done = subprocess.run(local, input=request.shown, text=True, capture_output=True, check=True)
    found = [json.loads(text) for text in re.split(r"(?<=^\})\n(?=\{)", done.stdout, flags=re.MULTILINE)]
    for item in found:
        del item["metadata"]["annotations"]["read"]
        item["metadata"]["annotations"] or item["metadata"].pop("annotations")
    written = with_files(request.body)
    assert {_identity(item): item for item in found} == {_identity(item): item for item in written}


def _identity(item: dict[str, Any]) -> str:
    return f"{item['kind']}/{item['metadata']['name']}"


def test_a_name_is_not_taken_from_a_job_that_runs_elsewhere(kubernetes: Namespace, tmp_path: Path) -> None:
    """Otherwise no client would find the first job again, and it would keep its GPUs."""
    job = prepared(tmp_path, job_name="twice", platform_options={"gpus": 64}).submit()
    with new_namespace(kubernetes.cluster, tmp_path):
        with pytest.raises(JobExists, match=f"runs or waits in the namespace {kubernetes.name} of context"):
            prepared(tmp_path, job_name="twice").submit()
        assert not job.describe().status.is_final
        job.stop()
        kubernetes.wait_until(lambda: job.describe().status.is_final, "the first job has ended")
        prepared(tmp_path, job_name="twice").submit()
        assert Places().find("twice").api.namespace != kubernetes.name
