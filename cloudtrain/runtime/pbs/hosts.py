"""The hosts of a job that PBS Professional, Torque or Cobalt has started."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cloudtrain.runtime.pbs.start import choose, command, node_names
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.node_hosts import NodeHosts


class PbsHosts(NodeHosts):
    """The nodes in the order that the scheduler gives them."""

    def __init__(self, folder: JobFolder, secrets: Mapping[str, str]) -> None:
        super().__init__(folder, node_names(os.environ), secrets)

    def command(self) -> list[str]:
        program = choose(self._request.get("start", "auto"), self.names, os.environ)
        return command(program, self.names, self._request["bundled_runtime"], str(self._folder.path))
