"""The formats of well-known keys and tokens.

Based on the documentation of their issuers: a fixed prefix or mark, an alphabet and a length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Callable

from cloudtrain._system.patterns import pattern

Finder = Callable[[bytes], Iterator[int]]
"""Yields the offset of each match."""

_NEXT_TO = 300
_AWS_KEY_ID = pattern(rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_AWS_SECRET = pattern(rb"(?<![A-Za-z0-9/+=])(?![0-9a-f]{40})[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")


def _aws_key_pairs(data: bytes) -> Iterator[int]:
    """Each access key id with a likely secret key at most `_NEXT_TO` bytes away."""
    for found in _AWS_KEY_ID.finditer(data):
        if found.group().endswith(b"EXAMPLE"):  # the AWS documentation uses such keys
            continue
        if _AWS_SECRET.search(data, max(0, found.start() - _NEXT_TO), found.end() + _NEXT_TO):
            yield found.start()


def _matches(pattern: str) -> Finder:
    # compiled at its first run, as most never run; re caches it
    return lambda data: (found.start() for found in re.finditer(pattern.encode(), data))


# The name of a format; its marks, at least one of which is in every match; and the finder. A finder runs only if a mark
# is found, which is many times faster.
_FORMATS: tuple[tuple[str, tuple[bytes, ...], Finder], ...] = (
    # The header line alone is not a key. Inside JSON, line ends are the two characters `\n`.
    (
        "private key",
        (b"PRIVATE KEY",),
        _matches(
            r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----"
            r"(?:\s|\\[nr]|[A-Za-z-]+: [^\n]*\n)*[A-Za-z0-9+/]{32}"
        ),
    ),
    (
        "private key in base64",
        (b"LS0tLS1CRUdJTi",),
        _matches(
            r"LS0tLS1CRUdJTi(?:BSU0EgUFJJVkFURS|BQUklWQVRF|BFQyBQUklWQVRF|BPUEVOU1NIIFBSSVZBVEUg)[A-Za-z0-9+/]{40}"
        ),
    ),
    ("PuTTY private key", (b"PuTTY-User-Key-File-",), _matches(r"PuTTY-User-Key-File-\d: ")),
    ("age private key", (b"AGE-SECRET-KEY-1",), _matches(r"AGE-SECRET-KEY-1[A-Z0-9]{58}")),
    ("AWS access key", (b"AKIA", b"ASIA"), _aws_key_pairs),
    ("Airtable token", (b"pat",), _matches(r"\bpat[A-Za-z0-9]{14}\.[0-9a-f]{64}\b")),
    ("Anthropic API key", (b"sk-ant-",), _matches(r"\bsk-ant-[a-z0-9]{2,12}-[\w-]{40,}")),
    ("Artifactory API key", (b"AKCp",), _matches(r"\bAKCp[A-Za-z0-9]{60,}")),
    ("Atlassian API token", (b"ATATT3",), _matches(r"\bATATT3[\w=-]{100,}")),
    ("Azure storage key", (b"AccountKey=",), _matches(r"AccountKey=[A-Za-z0-9+/]{86}==")),
    (
        "Azure shared access signature",
        (b"sig=",),
        _matches(r"[?&]sv=\d{4}-\d\d-\d\d&[^\s\"'<>]{0,300}sig=[A-Za-z0-9%]{43}"),
    ),
    ("Azure client secret", (b"Q~",), _matches(r"(?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{31,34}(?![\w.~-])")),
    ("Buildkite token", (b"bkua_",), _matches(r"\bbkua_[0-9a-f]{40}\b")),
    ("Databricks token", (b"dapi",), _matches(r"\bdapi[0-9a-f]{32}(?:-\d)?\b")),
    ("DigitalOcean token", (b"_v1_",), _matches(r"\bdo[opr]_v1_[0-9a-f]{64}\b")),
    (
        "Discord webhook",
        (b"/api/webhooks/",),
        _matches(r"discord(?:app)?\.com/api/webhooks/\d{10,}/[\w-]{60,}"),
    ),
    ("Docker token", (b"dckr_",), _matches(r"\bdckr_[po]at_[\w-]{27,}")),
    ("Docker registry password", (b'"auth"',), _matches(r'"auths?"\s*:\s*"[A-Za-z0-9+/]{12,}={0,2}"')),
    ("Doppler token", (b"dp.",), _matches(r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,}")),
    ("Dropbox token", (b"sl.",), _matches(r"\bsl\.[\w-]{130,}")),
    ("Figma token", (b"figd_",), _matches(r"\bfigd_[\w-]{40,}")),
    ("GitHub token", (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"), _matches(r"gh[pousr]_[A-Za-z0-9]{36}\b")),
    ("GitHub token", (b"github_pat_",), _matches(r"github_pat_\w{82}\b")),
    (
        "GitLab token",
        (b"glpat-", b"gldt-", b"glrt-", b"glcbt-", b"glptt-", b"glsoat-", b"glft-", b"glimt-", b"glagent-"),
        _matches(r"\bgl(?:pat|dt|rt|cbt|ptt|soat|ft|imt|agent)-[\w.-]{20,}"),
    ),
    ("Google API key", (b"AIza",), _matches(r"\bAIza[\w-]{35}(?![\w-])")),
    ("Google OAuth secret", (b"GOCSPX-",), _matches(r"\bGOCSPX-[\w-]{28}(?![\w-])")),
    ("Google OAuth token", (b"ya29.", b'"1//'), _matches(r"\bya29\.[\w-]{30,}|\"1//[\w-]{40,}\"")),
    (
        "Grafana token",
        (b"glc_", b"glsa_"),
        _matches(r"\bglc_[A-Za-z0-9+/]{32,}|\bglsa_[A-Za-z0-9]{32}_[0-9a-f]{8}\b"),
    ),
    ("Groq API key", (b"gsk_",), _matches(r"\bgsk_[A-Za-z0-9]{48,}")),
    ("Hugging Face token", (b"hf_", b"api_org_"), _matches(r"(?:hf|api_org)_[A-Za-z0-9]{34}\b")),
    ("LangSmith API key", (b"lsv2_",), _matches(r"\blsv2_[a-z]{2}_[0-9a-f]{32}_[0-9a-f]{10}\b")),
    ("Linear API key", (b"lin_api_",), _matches(r"\blin_api_[A-Za-z0-9]{40}\b")),
    ("Mailchimp API key", (b"-us",), _matches(r"\b[0-9a-f]{32}-us\d{1,2}\b")),
    ("Mailgun API key", (b"key-",), _matches(r"\bkey-[0-9a-f]{32}\b")),
    (
        "netrc password",
        (b"password",),
        _matches(r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+[^\s{}<>$]{6,}"),
    ),
    ("New Relic API key", (b"NRAK-",), _matches(r"\bNRAK-[A-Z0-9]{27}\b")),
    ("Notion token", (b"ntn_",), _matches(r"\bntn_[A-Za-z0-9]{40,}")),
    ("npm token", (b"npm_",), _matches(r"\bnpm_[A-Za-z0-9]{36}\b")),
    ("NVIDIA API key", (b"nvapi-",), _matches(r"\bnvapi-[\w-]{60,}")),
    (
        "OpenAI API key",
        (b"sk-",),
        _matches(
            r"(?<![\w-])sk-(?:proj|svcacct|admin|or-v1)-[\w-]{40,}|(?<![\w-])sk-[A-Za-z0-9]{32,}(?![\w-])"
        ),
    ),
    ("1Password token", (b"ops_eyJ",), _matches(r"\bops_eyJ[A-Za-z0-9+/]{250,}")),
    ("Perplexity API key", (b"pplx-",), _matches(r"\bpplx-[A-Za-z0-9]{48}\b")),
    ("Pinecone API key", (b"pcsk_",), _matches(r"\bpcsk_\w{60,}")),
    ("PlanetScale password", (b"pscale_",), _matches(r"\bpscale_(?:tkn|pw|oauth)_[\w.-]{32,}")),
    ("Postman API key", (b"PMAK-",), _matches(r"\bPMAK-[0-9a-f]{24}-[0-9a-f]{34}\b")),
    ("PyPI token", (b"pypi-AgE",), _matches(r"\bpypi-AgE[\w-]{50,}")),
    ("Replicate token", (b"r8_",), _matches(r"\br8_[A-Za-z0-9]{37}\b")),
    ("RubyGems API key", (b"rubygems_",), _matches(r"\brubygems_[0-9a-f]{48}\b")),
    ("SendGrid API key", (b"SG.",), _matches(r"\bSG\.[\w-]{22}\.[\w-]{43}(?![\w-])")),
    (
        "Sentry token",
        (b"sntrys_", b"sntryu_"),
        _matches(r"\bsntrys_eyJ[\w+/=-]{60,}|\bsntryu_[0-9a-f]{64}\b"),
    ),
    ("Shopify token", (b"shp",), _matches(r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}\b")),
    (
        "Slack token",
        (b"xox", b"xapp-"),
        _matches(r"xox[abeprs]-\d[\w-]{20,}|\bxapp-\d-[A-Z0-9]+-\d+-[0-9a-f]{32,}"),
    ),
    (
        "Slack webhook",
        (b"hooks.slack.com",),
        _matches(r"hooks\.slack\.com/(?:services|workflows)/[A-Z]\w+/\w+/\w{20,}"),
    ),
    ("Square token", (b"sq0",), _matches(r"\bsq0(?:atp|csp)-[\w-]{22,}")),
    ("Stripe API key", (b"_live_",), _matches(r"\b[sr]k_live_[A-Za-z0-9]{16,}")),
    ("Supabase token", (b"sbp_",), _matches(r"\bsbp_[0-9a-f]{40}\b")),
    ("Tailscale key", (b"tskey-",), _matches(r"\btskey-(?:auth|api|client|scim)-\w+-\w{16,}")),
    ("Telegram bot token", (b":AA",), _matches(r"(?<![\w:])\d{8,10}:AA[\w-]{33}(?![\w-])")),
    ("Terraform token", (b".atlasv1.",), _matches(r"\b[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}")),
    ("Twilio API key", (b"SK",), _matches(r"\bSK[0-9a-f]{32}\b")),
    ("Vault token", (b"hvs.", b"hvb."), _matches(r"\bhv[sb]\.[\w-]{24,}")),
    (
        "Weights & Biases API key",
        (b"wandb",),
        _matches(r"\bwandb_v1_\w{40,}|\bwandb\.login\([^)\n]{0,80}\bkey\s?=\s?\\?[\"'][0-9a-f]{40}\b"),
    ),
    ("xAI API key", (b"xai-",), _matches(r"\bxai-[A-Za-z0-9]{70,}")),
    ("JSON web token", (b"eyJ",), _matches(r"\beyJ[\w-]{15,}\.eyJ[\w-]{20,}\.[\w-]{40,}")),
)


def find_formats(data: bytes) -> Iterator[tuple[int, str]]:
    """The offset and the format of each key and token in ``data``."""
    for name, marks, find in _FORMATS:
        if any(mark in data for mark in marks):
            for offset in find(data):
                yield offset, name


SHORTEST = 16
"""Minimum characters of a key or token."""


def has_secret_format(text: str) -> bool:
    """Whether a key or token of a well-known format is in ``text``."""
    return len(text) >= SHORTEST and any(True for _ in find_formats(text.encode(errors="replace")))
