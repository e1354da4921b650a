"""The types of options: what msgspec cannot handle, and what a line of a script must not contain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.container.render import ContainerOptions
from cloudtrain.platforms.hosts.render import HostsOptions
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.local.render import LocalOptions
from cloudtrain.platforms.lsf.platform import LsfOptions
from cloudtrain.platforms.pbs.directives import PbsOptions
from cloudtrain.platforms.slurm.directives import SlurmOptions
from cloudtrain.spec import TrainingJob

STRUCTS = [
    TrainingJob,
    ContainerOptions,
    HostsOptions,
    KubernetesOptions,
    LocalOptions,
    LsfOptions,
    PbsOptions,
    SlurmOptions,
]


def unions(kind: inspect.Type) -> Iterator[inspect.UnionType]:
    if isinstance(kind, inspect.UnionType):
        yield kind
    for name in kind.__struct_fields__:
        value = getattr(kind, name)
        for one in value if isinstance(value, tuple) else [value]:
            if isinstance(one, inspect.Type):
                yield from unions(one)


@pytest.mark.parametrize("struct", STRUCTS)
def test_no_pattern_is_in_a_union_with_a_collection(struct: type[msgspec.Struct]) -> None:
    """With one, msgspec 0.22 frees memory that it does not own at the end of the process: a segmentation fault."""
    found = inspect.type_info(struct)
    assert isinstance(found, inspect.StructType)
    for field in found.fields:
        for union in unions(field.type):
            patterns = [kind for kind in union.types if isinstance(kind, inspect.StrType) and kind.pattern]
            collections = [
                kind for kind in union.types if isinstance(kind, (inspect.CollectionType, inspect.DictType))
            ]
            assert not (patterns and collections), f"{struct.__name__}.{field.name}"


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"account": "a\nb"}, "account"),
        ({"partition": "a\n#SBATCH --uid=0"}, "partition"),
        ({"partition": ["a\x00"]}, r"partition\[0\]"),
        ({"nodelist": "n1\x7f"}, "nodelist"),
        ({"gres": "gpu:1\n"}, "gres"),
    ],
)
def test_a_value_is_one_line(options: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidJob, match=f"platform_options.{where}: "):
        SlurmOptions.of(TrainingJob(platform="slurm", platform_options=options))
