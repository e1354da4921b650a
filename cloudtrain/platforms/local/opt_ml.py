"""Whether the hosts of a job can have their own ``/opt/ml``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtrain.contract.request_body import request_settings
from cloudtrain.platforms.local import namespace
from cloudtrain.storage import uri_scheme, uri_to_path


def no_opt_ml(request: Mapping[str, Any], folder: Path) -> str:
    """Why the hosts of a job cannot have their own ``/opt/ml``, as far as that is known; empty if nothing is.

    Args:
        request: the body of the request.
        folder: the job's folder.
    """
    if not request.get("mount_opt_ml", True):
        return "platform_options.mount_opt_ml is false"
    settings = request_settings(request)
    uris = (*(uri for _, uri in settings.channels), settings.output_uri, settings.checkpoint_uri)
    files = (uri_to_path(uri) for uri in uris if uri_scheme(uri) == "file")
    return namespace.obstacle([folder, request["python"], sys.executable, *filter(None, sys.path), *files])
