"""Access to an AWS account: session, clients, and errors that say what to do."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.aws.aws import Aws, owner_of
    from cloudtrain.aws.errors import aws_errors, error_code

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Aws": "cloudtrain.aws.aws",
        "aws_errors": "cloudtrain.aws.errors",
        "error_code": "cloudtrain.aws.errors",
        "owner_of": "cloudtrain.aws.aws",
    },
)

__all__ = ["Aws", "aws_errors", "error_code", "owner_of"]
