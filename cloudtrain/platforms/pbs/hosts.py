"""The hosts of a job that PBS Professional, Torque or Cobalt has started."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cloudtrain.platforms.batch.node_hosts import NodeHosts
from cloudtrain.platforms.pbs.start import choose, command, node_names
from cloudtrain.platforms.supervised.folder import JobFolder


class PbsHosts(NodeHosts):
    """The nodes in the order that the scheduler gives them."""

    def __init__(self, folder: JobFolder, secrets: Mapping[str, str]) -> None:
        super().__init__(folder, node_names(os.environ), secrets)

    def command(self) -> list[str]:
        program = choose(self._request.get("start", "auto"), self.names, os.environ)
        return command(program, self.names, self._request["bundled_runtime"], str(self._folder.path))
