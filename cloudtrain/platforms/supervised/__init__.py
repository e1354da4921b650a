"""Platforms that keep each job in a folder, and have a launcher run its hosts.

A job's folder may be on this machine or elsewhere (`JobRoot`). Its hosts are started by a process on this
machine or by a scheduler (`HostLauncher`). A supervisor close to the hosts runs the job (`supervise`).
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.platforms.supervised.platform import (
        HostLauncher as HostLauncher,
        SupervisedPlatform as SupervisedPlatform,
    )
    from cloudtrain.platforms.supervised.root import JobFiles as JobFiles, JobRoot as JobRoot
    from cloudtrain.runtime.supervisor.continuation import Continuation as Continuation
    from cloudtrain.runtime.supervisor.folder import JobFolder as JobFolder
    from cloudtrain.runtime.supervisor.hosts import (
        FolderHosts as FolderHosts,
        Hosts as Hosts,
        RunningHost as RunningHost,
    )
    from cloudtrain.runtime.supervisor.record import JobRecord as JobRecord
    from cloudtrain.runtime.supervisor.supervise import supervise as supervise

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.platforms.supervised.platform": "HostLauncher SupervisedPlatform",
        "cloudtrain.platforms.supervised.root": "JobFiles JobRoot",
        "cloudtrain.runtime.supervisor.continuation": "Continuation",
        "cloudtrain.runtime.supervisor.folder": "JobFolder",
        "cloudtrain.runtime.supervisor.hosts": "FolderHosts Hosts RunningHost",
        "cloudtrain.runtime.supervisor.record": "JobRecord",
        "cloudtrain.runtime.supervisor.supervise": "supervise",
    },
)
