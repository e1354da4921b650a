"""The parts of a job that every rendering starts from, and the names that Kubernetes allows for it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from cloudtrain.contract import Settings
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.spec import TrainingJob

LEADER_PORT = 7778
"""Where the leader listens for the other hosts."""
NODE_PORTS = range(20_000, 30_000)
"""The same in the network of a node, where jobs share the ports: by the job's name. Services have those above."""
RESTART_EXIT_CODE = 75
"""EX_TEMPFAIL: how a host ends that has to be restarted through no fault of the script."""

LONGEST = 63
"""The characters of a name, which is a label of DNS."""
LONGEST_BASE = 24
"""So much of a generated name can be chosen: a time, random characters, and the suffixes of pods follow."""
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class HostNames:
    """The host names of the pods, in the order of the hosts. The first leads."""

    names: tuple[str, ...]
    service: str
    """The headless Service that publishes them: ``HOST.SERVICE`` in DNS."""
    leader: str = ""
    """Where the others find the first host; empty: ``HOST.SERVICE``."""

    def rendezvous(self, *, host_network: bool) -> str:
        """Where the leader listens."""
        digest = zlib.crc32(self.names[0].encode())
        port = NODE_PORTS[digest % len(NODE_PORTS)] if host_network else LEADER_PORT
        return f"{self.leader or f'{self.names[0]}.{self.service}'}:{port}"


@dataclass(frozen=True)
class Parts:
    """A job, with everything about it that does not depend on the kind of its main object."""

    name: str
    job: TrainingJob
    options: KubernetesOptions
    namespace: str
    hosts: HostNames
    settings: Settings
    runtime_sha256: str
    by_url: bool
    """Whether pods download the source and the runtime from URLs in the Secret; they are in ConfigMaps otherwise."""

    @property
    def summary(self) -> Mapping[str, object]:
        """The facts that `describe` reports about the job without asking its pods."""
        settings = self.settings
        return {
            "output_uri": settings.output_uri,
            "checkpoint_uri": settings.checkpoint_uri,
            "compress_output": settings.compress_output,
            "git_commit": settings.git_commit,
            "arguments": self.job.arguments,
            "hosts": [name.partition(".")[0] for name in self.hosts.names],
            "image": self.job.image_uri,
        }


def refuse_if(is_wrong: object, message: str, hint: str) -> None:
    """Raises InvalidJob."""
    if is_wrong:
        raise InvalidJob(message, hint=hint)


def name_of(job: TrainingJob, longest_suffix: str = "") -> str:
    """The job's name. Raises InvalidJob if it cannot be that of its Service and of its pods.

    Args:
        longest_suffix: what the longest name of a pod adds to the job's name, such as ``-15``.
    """
    name, most = job.job_name, LONGEST - len(longest_suffix)
    assert name, "a job is named before it is rendered"
    refuse_if(
        not _LABEL.fullmatch(name),
        f"job_name: {name!r} is not a name for Kubernetes: lower-case letters, digits and hyphens, the first "
        "one a letter",
        f"For example: {nearest_name(name, most)}",
    )
    refuse_if(
        len(name) > most,
        f"job_name: {name!r} has {len(name)} characters, and Kubernetes allows {most} here",
        f"Its pods are called {name[:8]}...{longest_suffix}, in at most {LONGEST} characters. For example: "
        f"{nearest_name(name, most)}",
    )
    return name


def nearest_name(text: str, most: int = LONGEST) -> str:
    """``text`` as a name that `name_of` accepts."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not cleaned[:1].isalpha():
        cleaned = f"job-{cleaned}"
    return cleaned[:most].strip("-")
