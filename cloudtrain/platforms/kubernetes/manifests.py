"""A request to Kubernetes, as YAML that kubectl accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.kubernetes.delivery import with_files
from cloudtrain.platforms.kubernetes.labels import JOB_SECRET, START_KEY
from cloudtrain.platforms.kubernetes.plain_yaml import dump

_SECRET = """\
# The Secret is not shown. Before you apply these objects by hand, make it:
#   {command}"""


_PREVIEW = """\
# A terminal does not get the files in ConfigMaps, which are long. kubectl does:
#   cloudtrain submit ... --dry-run | kubectl apply --server-side -f -"""


_BY_URL = """\
# The Secret also has the URLs of the source and the runtime in S3, which end after a while. To apply these objects by
# hand, render them without: add --set platform_options.delivery=configmap"""


class ManifestRequest(Request):
    """A request whose body has ``objects``: the main object first, which owns the others."""

    @property
    def shown(self) -> str:
        """The objects as YAML, complete: ``kubectl apply --server-side -f`` accepts it. The main object comes last."""
        return to_yaml(self.body, with_files(self.body))

    @property
    def note(self) -> str:
        """The kind of the main object, and why."""
        return f"as a {self.body['objects'][0]['kind']}: {self.body['why']}"

    @property
    def preview(self) -> str:
        """`shown` for a terminal: without the files in ConfigMaps, which are a megabyte of base64."""
        objects = [_without_program(item) for item in self.body["objects"]]
        return to_yaml(self.body, objects, [_PREVIEW])


def to_yaml(body: Mapping[str, Any], objects: list[dict[str, Any]], notes: Sequence[str] = ()) -> str:
    """The objects as documents of YAML, the main one last."""
    main, *others = objects
    documents = [dump(item) for item in [*others, main]]
    head = [
        f"# {body['rendering']}: {body['why']}",
        *notes,
        *([_BY_URL] if body["files"]["delivery"] == "s3" else []),
        _SECRET.format(command=_secret_command(main)),
    ]
    return "\n".join([*head, ""]) + "---\n".join(["", *documents]).rstrip("\n")


def _without_program(item: dict[str, Any]) -> dict[str, Any]:
    if START_KEY not in item.get("data", {}):
        return item
    return {**item, "data": {**item["data"], START_KEY: "# starts the pod; see above"}}


def _secret_command(main: Mapping[str, Any]) -> str:
    """For bash and zsh. No value is an argument of a program: everybody on the machine can read those."""
    metadata = main["metadata"]
    names = dict.fromkeys(
        key for secret, key in _references(main["spec"]) if secret == metadata["name"] and key != JOB_SECRET
    )
    values = [
        f'--from-file={JOB_SECRET}=<(printf %s "$(openssl rand -hex 32)")',
        *(f'--from-file={name}=<(printf %s "${name}")' for name in names),
    ]
    return f"kubectl create secret generic {metadata['name']} -n {metadata['namespace']} {' '.join(values)}"


def _references(value: Any) -> Iterator[tuple[str, str]]:
    """The Secrets and keys that the variables of containers refer to."""
    if isinstance(value, dict):
        reference = value.get("secretKeyRef")
        if reference:
            yield reference["name"], reference["key"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
