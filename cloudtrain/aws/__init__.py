"""Access to an AWS account: session, clients, and errors with hints."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.aws.aws import Aws as Aws, owner_of as owner_of
    from cloudtrain.aws.errors import aws_errors as aws_errors, error_code as error_code

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.aws.aws": "Aws owner_of",
        "cloudtrain.aws.errors": "aws_errors error_code",
    },
)
