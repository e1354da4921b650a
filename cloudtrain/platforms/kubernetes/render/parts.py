"""The parts of a job that every rendering starts from."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from cloudtrain.contract import Settings
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.spec import TrainingJob

LEADER_PORT = 7778
"""Where the leader listens for the other hosts."""
NODE_PORTS = range(20_000, 30_000)
"""The same in the network of a node, where jobs share the ports: by the job's name. Services have those above."""


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
    """The job's name, and that of its objects."""
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
        return {
            "output_uri": self.settings.output_uri,
            "checkpoint_uri": self.settings.checkpoint_uri,
            "compress_output": self.settings.compress_output,
            "git_commit": self.settings.git_commit,
            "arguments": self.job.arguments,
            "hosts": [name.partition(".")[0] for name in self.hosts.names],
            "image": self.job.image_uri,
        }
