"""A request to Kubernetes, as YAML that kubectl accepts.

Readers of YAML 1.1, of 1.2, and kubectl's reader in Go get the same objects from it. They interpret plain scalars
differently: ``y`` is true for Go and text for PyYAML; ``1e-3`` is a number in both versions and text for PyYAML;
``0o17`` is a number in 1.2 only. Text that a reader might not read as text is quoted.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.kubernetes.labels import JOB_SECRET, START_KEY
from cloudtrain.platforms.kubernetes.submit import with_files

_SECRET = """\
# The Secret is not shown. Before you apply these objects by hand, make it:
#   {command}"""


_PREVIEW = """\
# A terminal does not get the files in ConfigMaps, which are long. kubectl does:
#   cloudtrain submit ... --dry-run | kubectl apply --server-side -f -"""


_BY_URL = """\
# The Secret also has the URLs of the source and the runtime in S3, which end after a while. To apply these objects by
# hand, render them without: add --set platform_options.delivery=configmap"""


_PLAIN = re.compile(r"[A-Za-z/][^\n]*")
"""No reader interprets text with this beginning as a number or a date."""
_WORDS = {"y", "yes", "on", "true", "n", "no", "off", "false", "null", "inf", "infinity", "nan"}
"""Text that a reader interprets as a boolean, null or a number, in upper or lower case."""
_BLOCK = re.compile(r"[!-~\u00a1-\ud7ff][ -~\u00a0-\ud7ff\n]*")
_BREAKS = re.compile("[\u0085\u2028\u2029]")
"""Line breaks in YAML 1.1, but not in 1.2."""


class ManifestRequest(Request):
    """A request whose body has ``objects``: the main object first, which owns the others."""

    @property
    def shown(self) -> str:
        """All objects as YAML for ``kubectl apply --server-side -f``. The main object comes last."""
        return to_yaml(self.body, with_files(self.body))

    @property
    def note(self) -> str:
        """The kind of the main object, and why it was chosen."""
        return f"as a {self.body['objects'][0]['kind']}: {self.body['why']}"

    @property
    def preview(self) -> str:
        """`shown` for a terminal: without the files in ConfigMaps, which are a megabyte of base64."""
        objects = [_without_program(item) for item in self.body["objects"]]
        return to_yaml(self.body, objects, [_PREVIEW])


def to_yaml(body: Mapping[str, Any], objects: list[dict[str, Any]], notes: Sequence[str] = ()) -> str:
    """The objects as YAML documents, the main one last."""
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
    """A command for bash and zsh. No value is an argument of a program, because every user can read those."""
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


def dump(item: Mapping[str, Any]) -> str:
    """One object as a document. Multi-line text is a block, and there are no aliases."""
    import yaml

    dump_with = functools.partial(yaml.dump, Dumper=_dumper(), sort_keys=False, allow_unicode=True)
    return str(dump_with(item, width=1 << 30, default_flow_style=False))


def _style(text: str) -> str | None:
    """The style of a scalar; None lets PyYAML choose, which quotes only text that it would misread itself."""
    if _BREAKS.search(text):
        return '"'
    if "\n" in text:
        return "|" if _BLOCK.fullmatch(text) else '"'
    return None if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else "'"


@functools.cache
def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))

    Dumper.add_representer(str, represent)
    return Dumper
