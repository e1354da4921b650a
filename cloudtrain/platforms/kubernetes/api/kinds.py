"""The kinds of objects, with their paths on the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudtrain.errors import PlatformError


@dataclass(frozen=True)
class Kind:
    """A kind of object, with its path on the API server."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion``: ``v1``, ``batch/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The resource in ``kubectl``'s notation: ``pods``, ``jobs.batch``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """The path of the group's version: ``/api/v1``, ``/apis/batch/v1``."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """The path of all objects in a namespace, of one object, or of its subresource."""
        parts = [self.root]
        if self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


JOB = Kind("batch", "v1", "Job", "jobs")
POD = Kind("", "v1", "Pod", "pods")
SERVICE = Kind("", "v1", "Service", "services")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SECRET = Kind("", "v1", "Secret", "secrets")
EVENT = Kind("", "v1", "Event", "events")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
VOLUME_CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)

JOB_SET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
TRAIN_JOB = Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
MPI_JOB = Kind("kubeflow.org", "v2beta1", "MPIJob", "mpijobs")
WORKLOAD = Kind("kueue.x-k8s.io", "v1beta2", "Workload", "workloads")
LOCAL_QUEUE = Kind("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues")
VOLCANO_POD_GROUP = Kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
COSCHEDULING_POD_GROUP = Kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")

_KINDS = {(kind.group, kind.kind): kind for kind in list(vars().values()) if isinstance(kind, Kind)}


def kind_of(obj: Mapping[str, Any]) -> Kind:
    """The kind of an object, at the object's version. Raises PlatformError for an unknown kind."""
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    kind = _KINDS.get((group, str(obj.get("kind"))))
    if kind is None or not version:
        raise PlatformError(
            f"cloudtrain does not support objects of kind {obj.get('apiVersion')} {obj.get('kind')}"
        )
    return Kind(kind.group, version, kind.kind, kind.plural, kind.namespaced)
