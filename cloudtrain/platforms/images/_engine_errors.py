"""From what the client of an engine raises to errors that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cloudtrain.errors import PlatformError


@contextmanager
def engine_errors(subject: str) -> Iterator[None]:
    """Raise what the ``docker`` client raises inside as a `PlatformError` about ``subject``."""
    from docker.errors import APIError, DockerException, ImageNotFound
    from requests.exceptions import RequestException

    try:
        yield
    except ImageNotFound as error:
        raise PlatformError(
            f"{subject}: there is no such image",
            hint="Check its name; docker login, if its registry wants that.",
        ) from error
    except APIError as error:
        raise PlatformError(f"{subject}: {error.explanation or error}") from error
    except (DockerException, RequestException) as error:
        raise PlatformError(f"{subject}: the engine does not answer: {error}") from error
