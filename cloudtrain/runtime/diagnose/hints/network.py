"""Downloads on a host without a network."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

_UNREACHABLE = (
    r"(?:Name or service not known|Temporary failure in name resolution|No address associated with hostname"
    r"|Name does not resolve|nodename nor servname provided|getaddrinfo failed|Network is unreachable|No route to host"
    r"|ConnectTimeoutError|urlopen error (?:\[Errno 110\]|timed out)|ProxyError|Tunnel connection failed)"
)

_IN_CHAIN = (
    r"(?m)^(?:\w+\.)*(?:URLError|gaierror|NewConnectionError|NameResolutionError|ConnectError|ConnectTimeout"
    rf"|ClientConnector\w*Error|ConnectionError|ProxyError|MaxRetryError): .*{_UNREACHABLE}"
)
"""Exceptions of urllib, urllib3, requests, httpx and aiohttp. Libraries raise others on top of them."""

_NOT_BETWEEN_RANKS = r"^(?!Dist\w*Error\b)"

_INSTEAD = (
    "Download the data where there is a network, store it as a channel (--input NAME=URI, inputs in Python), and give "
    "the script the channel's folder. With cloudtrain run, any folder that all hosts have will do."
)

HINTS = (
    Hint(
        "LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub and we cannot find the "
        "requested files in the local cache. ...",
        "",
        "This host cannot reach the Hugging Face Hub (no network, or HF_HUB_OFFLINE is set), and has no copy of what "
        "the script loads. Download it where there is a network, store it as a channel (--input NAME=URI, inputs in "
        "Python), and give the script the channel's folder in place of the name.",
        traceback=r"(?m)^(?:\w+\.)*(?:LocalEntryNotFoundError|OfflineModeIsEnabled): "
        r"|OSError: We couldn't connect to 'https://huggingface\.co'|Couldn't reach '[^']+' on the Hub \("
        r"|doesn't exist on the Hugging Face Hub either",
    ),
    Hint(
        "ConnectionError: HTTPSConnectionPool(host='example.org', port=443): Max retries exceeded with url: ...",
        r"host='(?P<server>[\w.-]+)'",
        "This host cannot reach {server}, from which the script downloads. " + _INSTEAD,
        traceback=_IN_CHAIN,
    ),
    Hint(
        "URLError: <urlopen error [Errno -2] Name or service not known>",
        _NOT_BETWEEN_RANKS,
        "This host cannot reach the server from which the script downloads. " + _INSTEAD,
        traceback=_IN_CHAIN,
    ),
    Hint(
        "RuntimeError: Error downloading train-images-idx3-ubyte.gz",
        r"^RuntimeError: Error downloading \S+(?m:$)",
        "torchvision could not download the data set: the output above says why. " + _INSTEAD,
    ),
)
