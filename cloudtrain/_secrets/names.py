"""Names of secrets, in any case style: ``DB_PASS``, ``wandbApiKey``, ``auth-token``."""

from __future__ import annotations

from cloudtrain._system.patterns import pattern

_PART = pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")

_ALWAYS = {
    *("auth", "authorization", "bearer", "cookie", "credential", "credentials", "creds", "dsn", "jwt"),
    *("passcode", "passphrase", "passwd", "password", "passwords", "secret", "secrets", "webhook"),
}
_ENDINGS = (
    *("password", "passwd", "passphrase", "secret", "credentials", "token"),
    *("apikey", "accesskey", "accountkey", "authkey", "masterkey", "privatekey", "secretkey", "signingkey"),
    *("sshkey", "dbpass", "keypass", "sshpass", "storepass", "userpass"),
)
"""The endings of parts that join several names without a separator: ``PGPASSWORD``, ``AUTHTOKEN``."""

_LAST = {"pass", "pat", "pwd", "sas"}
"""Parts that mean a secret only at the end: ``DB_PASS``, but not ``PASS_RATE``."""
_NOT_PASSES = {
    *("backward", "by", "first", "forward", "max", "n", "num", "one", "per", "second", "single", "two"),
}

_OF_TEXT = {
    *("audio", "begin", "bos", "class", "cls", "decoder", "encoder", "end", "eos", "first", "image"),
    *("label", "last", "mask", "max", "min", "n", "new", "next", "num", "pad", "per", "prefix", "sep"),
    *("special", "start", "stop", "suffix", "unk", "video"),
}
"""Parts before ``token`` where it means a piece of text, as in ``eos_token``."""
_ABOUT_TEXT = {
    *("budget", "classification", "count", "dim", "dropout", "embedding", "embeddings", "id", "ids", "index"),
    *("indices", "len", "length", "level", "limit", "mask", "pattern", "size", "sizes", "type", "types"),
}
"""Parts after ``token`` in that meaning: ``token_type_ids``."""
_NOT_KEYS = {
    *("batch", "cache", "column", "dict", "feature", "foreign", "group", "image", "index", "input"),
    *("join", "label", "lookup", "metric", "monitor", "order", "output", "partition", "primary"),
    *("public", "row", "shard", "sort", "target", "text"),
}
_OF_ACCESS = {"access", "api", "auth", "bearer", "private", "refresh", "secret", "ssh"}
"""Parts that make a plural a secret: ``API_KEYS``, but not ``num_tokens``."""

_ADDRESSES = {"uri", "url"}
_SERVICES = {
    *("amqp", "broker", "clickhouse", "database", "db", "elasticsearch", "jdbc", "mariadb", "mongo"),
    *("mongodb", "mysql", "pg", "postgres", "postgresql", "rabbitmq", "redis", "sqlalchemy"),
}
"""Services whose URLs usually contain a password."""


def is_secret_name(name: str) -> bool:
    """Whether something with this name, such as an environment variable, is probably a secret.

    >>> [is_secret_name(name) for name in ("WANDB_API_KEY", "wandbApiKey", "PGPASSWORD", "GITHUB_PAT", "db.pass")]
    [True, True, True, True, True]
    >>> [is_secret_name(name) for name in ("KEYBOARD", "TOKENIZERS_PARALLELISM", "num_tokens", "eos_token", "author")]
    [False, False, False, False, False]
    """
    parts = split_name(name)
    return any(_is_secret(parts, number) for number in range(len(parts)))


def split_name(name: str) -> list[str]:
    """The parts of a name in lower case, without digits.

    >>> split_name("HFToken_v2.userId")
    ['hf', 'token', 'v', 'user', 'id']
    """
    return [part.lower() for part in _PART.findall(name)]


def _is_secret(parts: list[str], number: int) -> bool:
    part = parts[number]
    before = parts[number - 1] if number else ""
    after = parts[number + 1] if number + 1 < len(parts) else ""
    if part in ("token", "key", "tokens", "keys"):
        if part.endswith("s"):
            return before in _OF_ACCESS
        if part == "key":
            return before not in _NOT_KEYS
        return before not in _OF_TEXT and after not in _ABOUT_TEXT
    if part in _LAST:
        # PWD and OLDPWD are the shell's working folders
        return not after and before not in _NOT_PASSES and (part != "pwd" or bool(before))
    if part in ("string", "str"):
        return before in ("connection", "conn")
    if part in _ADDRESSES:
        return not after and not _SERVICES.isdisjoint(parts)
    return part in _ALWAYS or part.endswith(_ENDINGS)
