"""The rights that the doctor asks for, and the Role in the guide that grants them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cloudtrain.platforms.kubernetes.api.kinds import JOB, JOB_SET, MPI_JOB, TRAIN_JOB, Kind
from cloudtrain.platforms.kubernetes.doctor.access import rights, role

GUIDE = Path(__file__).parents[3] / "docs/guides/kubernetes.md"


@pytest.mark.parametrize("main", [JOB, JOB_SET, TRAIN_JOB, MPI_JOB], ids=lambda kind: kind.plural)
def test_the_role_of_the_guide_grants_them_all(main: Kind) -> None:
    text = GUIDE.read_text().split("```yaml role.yaml\n", 1)[1].split("```", 1)[0]
    granted = {
        (group, resource, verb)
        for rule in yaml.safe_load(text)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    wanted = {
        (right.kind.group, right.resource, verb)
        for right in rights(main, has_queue=True)
        for verb in right.verbs
    }
    assert wanted <= granted


def test_the_printed_role_is_one_for_kubectl() -> None:
    document = yaml.safe_load(role(rights(JOB), "research"))
    assert document["metadata"] == {"name": "cloudtrain", "namespace": "research"}
    assert {"apiGroups": ["batch"], "resources": ["jobs"]}.items() <= document["rules"][0].items()
    assert {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]} in document["rules"]
