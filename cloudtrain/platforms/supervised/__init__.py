"""Platforms that keep each job in a folder, and have a launcher run its hosts.

A job's folder may be on this machine or elsewhere (`JobRoot`). Its hosts are started by a process of this
machine or a scheduler (`HostLauncher`). A supervisor close to the hosts runs the job (`supervise`).
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.supervised.continuation import Continuation
    from cloudtrain.platforms.supervised.folder import JobFolder
    from cloudtrain.platforms.supervised.hosts import FolderHosts, Hosts, RunningHost
    from cloudtrain.platforms.supervised.launcher import HostLauncher
    from cloudtrain.platforms.supervised.platform import SupervisedPlatform
    from cloudtrain.platforms.supervised.record import JobRecord
    from cloudtrain.platforms.supervised.root import JobFiles, JobRoot
    from cloudtrain.platforms.supervised.supervisor import supervise

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Continuation": "cloudtrain.platforms.supervised.continuation",
        "FolderHosts": "cloudtrain.platforms.supervised.hosts",
        "HostLauncher": "cloudtrain.platforms.supervised.launcher",
        "Hosts": "cloudtrain.platforms.supervised.hosts",
        "JobFiles": "cloudtrain.platforms.supervised.root",
        "JobFolder": "cloudtrain.platforms.supervised.folder",
        "JobRecord": "cloudtrain.platforms.supervised.record",
        "JobRoot": "cloudtrain.platforms.supervised.root",
        "RunningHost": "cloudtrain.platforms.supervised.hosts",
        "SupervisedPlatform": "cloudtrain.platforms.supervised.platform",
        "supervise": "cloudtrain.platforms.supervised.supervisor",
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
