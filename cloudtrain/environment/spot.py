"""The notice of an EC2 spot interruption, two minutes ahead, from the instance metadata service.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html (``spot/instance-action``).
Uses version 2 of the service, which requires a token. Amazon recommends polling every 5 seconds.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Callable

from cloudtrain.contract import Notice

POLL_SECONDS = 5.0
TIMEOUT_SECONDS = 2.0
TOKEN_SECONDS = 21600
ENDPOINT = "http://169.254.169.254"


def watch_spot(on_notice: Callable[[Notice], None]) -> None:
    """Poll for the notice in a thread, and call ``on_notice`` with it once."""
    threading.Thread(target=_watch, args=(on_notice,), name="spot notice", daemon=True).start()


def spot_notice(endpoint: str | None = None) -> Notice | None:
    """The current notice, if any.

    Args:
        endpoint: the service's address. Default: ``AWS_EC2_METADATA_SERVICE_ENDPOINT``, else Amazon's address.

    Raises:
        OSError: the service does not answer, or its answer is invalid.
    """
    base = endpoint or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or ENDPOINT
    base = base.rstrip("/") + "/latest"
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
    token = _request("PUT", f"{base}/api/token", lifetime)
    text = token and _request(
        "GET", f"{base}/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token}
    )
    if not text:
        return None
    try:
        action = json.loads(text)
        deadline = datetime.fromisoformat(action["time"].replace("Z", "+00:00")).timestamp()
        return Notice(deadline, f"EC2 spot interruption: {action['action']}")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise OSError(f"the answer of {base} is not a valid spot notice: {text!r}") from None


def _watch(on_notice: Callable[[Notice], None]) -> None:
    while True:
        try:
            notice = spot_notice()
        except OSError:
            notice = None  # training does not depend on the service; it may answer next time
        if notice:
            on_notice(notice)
            return
        time.sleep(POLL_SECONDS)


def _request(method: str, url: str, headers: Mapping[str, str]) -> str | None:
    """The response; None for 404. Never uses a proxy, because the service is local to the instance."""
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, Request, build_opener

    request = Request(url, method=method, headers=dict(headers))
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_SECONDS) as answer:
            text: str = answer.read().decode("utf-8", "replace")
            return text
    except HTTPError as error:
        if error.code == 404:
            return None
        raise
