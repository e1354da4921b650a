"""Credentials in URLs: ``https://user:password@host/path?token=...``."""

from __future__ import annotations

import re

from cloudtrain._secrets.names import is_secret_name
from cloudtrain._system.patterns import pattern

HIDDEN = "***"
"""Replaces a secret wherever text is shown or stored."""

_URL = pattern(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30})://(?P<rest>[^\s\"'<>`]+)")
_USERINFO = pattern(r"[^/?#]*@")  # as far as the last @: some passwords are not escaped
_PARAMETER = pattern(r"(?P<before>[?&;](?P<name>[\w.%-]{1,64})=)(?P<value>[^&;#\s]+)")
_SIGNATURES = {"sig", "signature", "x-amz-signature", "x-goog-signature"}


def hide_credentials(text: str) -> str:
    """``text``, where ``***`` replaces the user and the password in each URL, and each secret parameter.

    The user of an SSH URL without a password stays: it is not a secret.

    >>> hide_credentials("see https://ann:pw@host/a?page=2&token=abc and ssh://git@host/b")
    'see https://***@host/a?page=2&token=*** and ssh://git@host/b'
    """
    return _URL.sub(_without_credentials, text) if "://" in text else text


def has_credentials(text: str) -> bool:
    """Whether `hide_credentials` would hide something."""
    return hide_credentials(text) != text


def _without_credentials(url: re.Match[str]) -> str:
    scheme, rest = url["scheme"], url["rest"]
    userinfo = _USERINFO.match(rest)
    if userinfo and (":" in userinfo[0] or not scheme.lower().endswith("ssh")):
        rest = f"{HIDDEN}@{rest[userinfo.end() :]}"
    return f"{scheme}://{_PARAMETER.sub(_without_value, rest)}"


def _without_value(parameter: re.Match[str]) -> str:
    name = parameter["name"]
    is_secret = name.lower() in _SIGNATURES or is_secret_name(name)
    return f"{parameter['before']}{HIDDEN}" if is_secret else parameter[0]
