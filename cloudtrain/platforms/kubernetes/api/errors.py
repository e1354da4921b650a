"""The errors of the API, each with what to do about it."""

from __future__ import annotations

from cloudtrain.errors import PlatformError


class KubeError(PlatformError):
    """The API server refused a request, or cannot be asked."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        status: int = 0,
        reason: str = "",
        is_transient: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        """The HTTP status; 0 without an answer."""
        self.reason = reason
        """Kubernetes' own name for it: ``NotFound``, ``AlreadyExists``, ..."""
        self.is_transient = is_transient
        """Whether the same request may succeed later."""
        self.retry_after = retry_after
        """After how many seconds, if the server said so."""


class KubeNotFound(KubeError):
    """The object, its namespace or its kind does not exist."""


class KubeAlreadyExists(KubeError):
    """An object of this kind and name exists."""


class KubeConflict(KubeError):
    """The object has changed since it was read, or another object has its name now."""


class KubeForbidden(KubeError):
    """The credentials do not allow this verb on this resource."""


class KubeUnauthorized(KubeError):
    """The cluster does not accept the credentials."""


class KubeInvalid(KubeError):
    """The object breaks a rule of its schema, an admission webhook, a quota or a policy."""


class KubeGone(KubeError):
    """The server no longer has the history that a watch asked for: list again."""


class KubeUnreachable(KubeError):
    """There was no answer, or the connection broke."""


class KubeTooLarge(KubeError):
    """The answer does not fit into the memory that a client may use for it."""
