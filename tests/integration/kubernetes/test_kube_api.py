"""The client, as alice, who may do what a user of cloudtrain needs."""

from __future__ import annotations

import pytest
from kube_fixtures import Namespace

from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import (
    KubeAlreadyExists,
    KubeConflict,
    KubeForbidden,
    KubeInvalid,
    KubeNotFound,
)
from cloudtrain.platforms.kubernetes.api.kinds import CONFIG_MAP, JOB, NODE, POD, SERVICE_ACCOUNT, WORKLOAD


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
def api(kubernetes: Namespace) -> Api:
    return Api.connect()


def test_objects(api: Api, kubernetes: Namespace) -> None:
    assert (api.context, api.namespace, api.method) == ("test", kubernetes.name, "a token")
    made = api.create(config_map("one", a="1"))
    assert made["data"] == {"a": "1"}
    with pytest.raises(KubeAlreadyExists, match=f"ConfigMap one exists in the namespace {kubernetes.name}"):
        api.create(config_map("one"))
    assert api.patch(CONFIG_MAP, "one", {"data": {"b": "2"}})["data"] == {"a": "1", "b": "2"}
    with pytest.raises(KubeConflict):
        api.patch(CONFIG_MAP, "one", {"metadata": {"resourceVersion": "1"}, "data": {"b": "3"}})
    items, version = api.list(CONFIG_MAP, fields="metadata.name=one")
    assert [item["kind"] for item in items] == ["ConfigMap"]
    assert version
    with pytest.raises(KubeConflict):
        api.delete(CONFIG_MAP, "one", uid="of another")
    assert api.get(CONFIG_MAP, "one")["metadata"]["uid"] == made["metadata"]["uid"]
    api.delete(CONFIG_MAP, "one", foreground=False, uid=made["metadata"]["uid"])
    with pytest.raises(KubeNotFound, match=f"there is no ConfigMap one in the namespace {kubernetes.name}"):
        api.get(CONFIG_MAP, "one")


def test_a_create_may_answer_with_the_metadata_only(api: Api) -> None:
    made = api.create(config_map("large", a="1"), only_metadata=True)
    assert made["metadata"]["uid"] == api.get(CONFIG_MAP, "large")["metadata"]["uid"]
    assert (made["apiVersion"], made["kind"], made.get("data")) == ("v1", "ConfigMap", None)


def test_dry_run_keeps_nothing(api: Api) -> None:
    api.create(config_map("dry"), dry_run=True)
    with pytest.raises(KubeNotFound):
        api.get(CONFIG_MAP, "dry")


def test_long_lists_are_read_in_pages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.api.client.PAGE", 2)
    for number in range(5):
        api.create(config_map(f"map-{number}"))
    assert len([item for item in api.list(CONFIG_MAP)[0] if item["metadata"]["name"].startswith("map")]) == 5


def test_an_object_that_breaks_its_schema(api: Api) -> None:
    broken = {**config_map("one"), "metadata": {"name": "Not A Name"}}
    with pytest.raises(KubeInvalid, match=r"refuses ConfigMap Not A Name: metadata.name"):
        api.create(broken)


def test_forbidden_names_the_missing_right(api: Api, kubernetes: Namespace) -> None:
    with pytest.raises(KubeForbidden) as caught:
        api.list(SERVICE_ACCOUNT)
    assert caught.value.message == f"alice may not list serviceaccounts in the namespace {kubernetes.name}"
    assert f"the verb list on serviceaccounts in the namespace {kubernetes.name}" in caught.value.hint


def test_rights_kinds_and_version(api: Api) -> None:
    assert api.allowed("create", JOB)
    assert api.allowed("get", POD, subresource="log")
    assert api.allowed("list", NODE)
    assert not api.allowed("create", POD)
    assert api.has(JOB)
    assert not api.has(WORKLOAD)
    assert api.server_version()[:2] == (1, 31)


def test_watch(api: Api) -> None:
    _, version = api.list(CONFIG_MAP)
    api.create(config_map("seen"))
    with api.watch(CONFIG_MAP, resource_version=version) as watch:
        change, found = next(watch.changes())
    assert (change, found["metadata"]["name"]) == ("ADDED", "seen")
