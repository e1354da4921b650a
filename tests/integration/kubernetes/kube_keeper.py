"""The process that holds the containers of a worker's cluster: it starts them, reports their ends, and outlives none.

Requests and reports are datagrams of JSON on the socket that is its standard input. When that closes, even because
pytest was killed, it kills all its children. Its network is the switch between the pods.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))
import kube_sandbox as sandbox

PR_SET_CHILD_SUBREAPER = 36
SIZE = 1 << 20


class Keeper:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._cables = 0

    def run(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        sandbox.unshare(sandbox.NEW_NET)
        sandbox.ip("link add br0 type bridge", "link set br0 up")
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self._channel, reading], [], [])
            if reading in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(reading, SIZE)
            self._reap()
            if self._channel in ready and not self._serve():
                break
        self._kill_all()

    def _serve(self) -> bool:
        """Obey one request; False at the end."""
        data, descriptors, _, _ = socket.recv_fds(self._channel, SIZE, 4)
        if not data:
            return False
        request = json.loads(data)
        answer: dict[str, Any] = {"id": request["id"]}
        handed: list[int] = []
        try:
            result = getattr(self, f"do_{request.pop('do')}")(request, descriptors)
            answer["result"], handed = result if isinstance(result, tuple) else (result, [])
        except OSError as error:
            answer["error"] = error.strerror or str(error)
        for descriptor in descriptors:
            os.close(descriptor)
        self._tell(answer, handed)
        for descriptor in handed:
            os.close(descriptor)
        return True

    def do_sandbox(self, request: dict[str, Any], _: list[int]) -> tuple[int, list[int]]:
        """A new sandbox: its process id, and the sockets that listen inside it."""
        near, far = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            near.close()
            _or_exit(lambda: self._become_sandbox(request, far))
        far.close()
        with near:
            data, handed, _, _ = socket.recv_fds(near, SIZE, 32)
            if data != b"ok":
                raise OSError(f"sandbox: {data.decode()}")
            self._cables += 1
            cable = f"pod{self._cables}"
            sandbox.ip(
                f"link add {cable} type veth peer name eth0 netns {pid}", f"link set {cable} master br0 up"
            )
            near.sendall(b"cable")
            if near.recv(16) != b"up":
                raise OSError("the sandbox has no network")
        return pid, handed

    def _become_sandbox(self, request: dict[str, Any], far: socket.socket) -> None:
        signal.set_wakeup_fd(-1)
        self._channel.close()
        try:
            listeners = sandbox.become_sandbox(request["hostname"], request["listen"])
        except Exception as error:
            far.sendall(str(error).encode())
            return
        ancillary = [
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno() for one in listeners]))
        ]
        far.sendmsg([b"ok"], ancillary if listeners else [])
        far.recv(16)
        sandbox.ip(f"address add {request['ip']}/16 dev eth0", "link set eth0 up")
        far.sendall(b"up")
        far.close()
        for one in listeners:
            one.close()
        ctypes.CDLL(None).prctl(sandbox.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        while True:
            signal.pause()

    def do_run(self, spec: dict[str, Any], descriptors: list[int]) -> int:
        """A new container, whose output goes to the descriptor; its process id."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        sandbox.unshare(sandbox.NEW_PID)  # for the next child
        try:
            pid = os.fork()
            if pid == 0:
                _or_exit(lambda: self._become_container(spec, descriptors[0], writing))
        finally:
            sandbox.enter("/proc/self/ns/pid")
            os.close(writing)
        with os.fdopen(reading, "rb") as errors:
            problem = errors.read()
        if problem:
            raise OSError(problem.decode(errors="replace"))
        return pid

    def _become_container(self, spec: dict[str, Any], output: int, errors: int) -> None:
        signal.set_wakeup_fd(-1)
        try:
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            sandbox.become_container(spec)
        except Exception as error:
            os.write(errors, str(error).encode())

    def do_kill(self, request: dict[str, Any], _: list[int]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(request["pid"], request["signal"])

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                code = os.waitstatus_to_exitcode(status)
                self._tell({"ended": pid, "code": code if code >= 0 else 128 - code}, [])

    def _tell(self, message: dict[str, Any], descriptors: list[int]) -> None:
        with contextlib.suppress(OSError):  # pytest has gone: the next request is the end
            if descriptors:
                socket.send_fds(self._channel, [json.dumps(message).encode()], descriptors)
            else:
                self._channel.send(json.dumps(message).encode())

    def _kill_all(self) -> None:
        """Kill the children until there are none: the kernel hands those of a dead child to this process."""
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            while True:
                children.seek(0)
                for pid in children.read().split():
                    os.kill(int(pid), signal.SIGKILL)
                try:
                    os.wait()
                except ChildProcessError:
                    return


def _or_exit(work: Any) -> None:
    """Never returns: a child must not continue as the keeper."""
    try:
        work()
    finally:
        os._exit(127)


if __name__ == "__main__":
    Keeper(socket.socket(fileno=os.dup(0))).run()
