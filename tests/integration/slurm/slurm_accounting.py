"""The accounting of a cluster: slurmdbd, with its data in its own MariaDB."""

from __future__ import annotations

import getpass
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from daemons import Daemons
from slurm_programs import program

TABLES = Path("/usr/share/mysql")
SMALL = (
    "--no-defaults",
    "--skip-grant-tables",
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=16M",
    "--innodb-data-file-path=ibdata1:4M:autoextend",
    "--innodb-temp-data-file-path=ibtmp1:4M:autoextend",
    "--innodb-autoextend-increment=1",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-use-native-aio=0",
)
"""Options of a MariaDB whose data need not survive a crash."""


class Accounting:
    """MariaDB and slurmdbd among the daemons of a cluster; ``ports`` are two free ones."""

    def __init__(self, daemons: Daemons, env: Mapping[str, str], ports: Sequence[int]) -> None:
        self._daemons = daemons
        self._env = env
        self._database_port, self._port = ports
        self._folder = daemons.folder
        self._database = program("mariadbd")

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines for slurm.conf."""
        return (
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self._port}",
        )

    def start(self) -> None:
        """Start both. slurmctld waits for slurmdbd by itself."""
        data = self._folder / "database"
        data.mkdir()
        options = [*SMALL, f"--datadir={data}", f"--user={getpass.getuser()}"]
        tables = [TABLES / f"mysql_{name}.sql" for name in ("system_tables", "system_tables_data")]
        text = "create database mysql;\nuse mysql;\n" + "".join(path.read_text() for path in tables)
        subprocess.run(
            [self._database, *options, "--bootstrap"], input=text, text=True, check=True, capture_output=True
        )
        network = ["--bind-address=127.0.0.1", f"--port={self._database_port}", f"--socket={data}/socket"]
        self._daemons.start("mariadbd", [self._database, *options, *network], self._env)
        self._write_configuration()
        self._await_port(self._database_port)
        self._daemons.start("slurmdbd", [program("slurmdbd"), "-D"], self._env)
        self._await_port(self._port)

    def _write_configuration(self) -> None:
        lines = [
            "AuthType=auth/none",
            f"DbdHost={socket.gethostname().partition('.')[0]}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={self._port}",
            f"SlurmUser={getpass.getuser()}",
            f"PidFile={self._folder}/slurmdbd.pid",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={self._database_port}",
            "StorageUser=slurm",
            "StoragePass=unused",
            "CommunicationParameters=NoInAddrAny",
        ]
        path = self._folder / "slurmdbd.conf"
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")

    def _await_port(self, port: int, patience: float = 30) -> None:
        deadline = time.monotonic() + patience
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
