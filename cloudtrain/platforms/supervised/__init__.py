"""Platforms that keep each job in a folder, and have a launcher run its hosts.

A job's folder may be on this machine or elsewhere (`JobRoot`). Its hosts are started by a process of this
machine or a scheduler (`HostLauncher`). A supervisor close to the hosts runs the job (`supervise`).
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.supervised.platform import HostLauncher, SupervisedPlatform
    from cloudtrain.platforms.supervised.root import JobFiles, JobRoot
    from cloudtrain.runtime.supervisor.continuation import Continuation
    from cloudtrain.runtime.supervisor.folder import JobFolder
    from cloudtrain.runtime.supervisor.hosts import FolderHosts, Hosts, RunningHost
    from cloudtrain.runtime.supervisor.record import JobRecord
    from cloudtrain.runtime.supervisor.supervise import supervise

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Continuation": "cloudtrain.runtime.supervisor.continuation",
        "FolderHosts": "cloudtrain.runtime.supervisor.hosts",
        "HostLauncher": "cloudtrain.platforms.supervised.platform",
        "Hosts": "cloudtrain.runtime.supervisor.hosts",
        "JobFiles": "cloudtrain.platforms.supervised.root",
        "JobFolder": "cloudtrain.runtime.supervisor.folder",
        "JobRecord": "cloudtrain.runtime.supervisor.record",
        "JobRoot": "cloudtrain.platforms.supervised.root",
        "RunningHost": "cloudtrain.runtime.supervisor.hosts",
        "SupervisedPlatform": "cloudtrain.platforms.supervised.platform",
        "supervise": "cloudtrain.runtime.supervisor.supervise",
    },
)

__all__ = [
    "Continuation",
    "FolderHosts",
    "HostLauncher",
    "Hosts",
    "JobFiles",
    "JobFolder",
    "JobRecord",
    "JobRoot",
    "RunningHost",
    "SupervisedPlatform",
    "supervise",
]
