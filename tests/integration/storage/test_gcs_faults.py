"""Google Cloud Storage behind a bad network: a proxy in front of the emulator injects the faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from gcs_server import GCSServer
from s3_proxy import Answer, Exchange, Fault, s3_proxy

from cloudtrain.errors import AccessDenied, NotFound, StorageError, Unreachable
from cloudtrain.storage import Store, open_store
from cloudtrain.storage.base import AlteredBody

pytestmark = pytest.mark.proof("Google Cloud Storage", imitated="gcp-storage-emulator")

Open = Callable[[Fault], tuple[Store, list[str]]]


@pytest.fixture
def behind(gcs_server: GCSServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a store in a fresh bucket behind a proxy with a fault; also returns the methods of its requests."""
    with ExitStack() as stack:

        def behind(fault: Fault) -> tuple[Store, list[str]]:
            requests: list[str] = []

            def answer(exchange: Exchange) -> Answer | None:
                if "/o" not in exchange.path:  # a thread of the library looks at the bucket, for traces
                    return exchange.forward()
                requests.append(exchange.method)
                return fault(exchange)

            url, _ = stack.enter_context(s3_proxy(gcs_server.url, answer))
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
            return open_store(f"gs://{gcs_server.create_bucket()}/folder"), requests

        yield behind


class Sometimes:
    """Answers the given requests, counted from 0, with ``answer``, and forwards the others."""

    def __init__(self, answer: Callable[[Exchange], Answer | None], *numbers: int) -> None:
        self.numbers = set(numbers)
        self._answer = answer
        self._count = 0

    def __call__(self, exchange: Exchange) -> Answer | None:
        number, self._count = self._count, self._count + 1
        return self._answer(exchange) if number in self.numbers else exchange.forward()


def unavailable(_: Exchange) -> Answer:
    return 503, [], b"busy"


def break_off(_: Exchange) -> None:
    return None


def page(_: Exchange) -> Answer:
    return 200, [("Content-Type", "text/html")], b"<html>Sign in to this network</html>"


@pytest.mark.parametrize("answer", [unavailable, break_off, page])
def test_every_request_is_sent_again(behind: Open, answer: Fault, tmp_path: Path) -> None:
    fault = Sometimes(answer)
    store, _requests = behind(fault)
    (tmp_path / "file").write_bytes(b"file")
    fault.numbers = set(range(0, 40, 2))  # every operation meets the fault first
    store.write("a", b"1")
    assert store.create("b", b"2")
    store.upload(tmp_path / "file", "c")
    assert store.stat("a")
    assert [entry.key for entry in store.list()] == ["a", "b", "c"]
    store.delete(["a"])
    assert store.read("b") == b"2"
    store.download("c", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"file"


def test_a_page_is_not_an_object(behind: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTRAIN_STORAGE_PATIENCE", "0")
    store, _ = behind(page)
    with pytest.raises(Unreachable, match="not an answer of Google Cloud Storage"):
        store.read("a")
    with pytest.raises(Unreachable, match="not an answer of Google Cloud Storage"):
        store.download("a", tmp_path / "a")
    assert not list(tmp_path.iterdir())
    for use in (lambda: store.write("a", b"1"), lambda: store.stat("a"), lambda: list(store.list())):
        with pytest.raises(Unreachable):
            use()


def test_the_store_created_an_object_although_the_answer_was_lost(behind: Open) -> None:
    def lose(exchange: Exchange) -> None:
        exchange.forward()

    store, _ = behind(Sometimes(lose, 0))
    assert store.create("lock", b"mine")
    assert not store.create("lock", b"other")


def test_an_upload_and_a_download_continue(
    behind: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain.storage.gcs.PART", 3 << 20)
    content = bytes(range(256)) * (1 << 15) + b"end"  # 8 MiB and more: three parts
    (tmp_path / "large").write_bytes(content)
    fault = Sometimes(unavailable)
    store, requests = behind(fault)
    fault.numbers = {2}  # the second part
    uploaded: list[int] = []
    store.upload(tmp_path / "large", "large", uploaded.append)
    assert requests.count("PUT") == 3 + 1  # one part again
    assert sum(uploaded) == len(content)

    def cut(exchange: Exchange) -> Answer:
        status, headers, body = exchange.forward()
        return status, [*headers, ("X-Goog-Generation", "1")], body[: len(body) // 2]

    fault.numbers, fault._answer = {len(requests)}, cut
    downloaded: list[int] = []
    store.download("large", tmp_path / "copy", downloaded.append)
    assert (tmp_path / "copy").read_bytes() == content
    assert sum(downloaded) == len(content)
    with store.open("large") as stream:
        assert stream.read(5) == content[:5]
        assert stream.read() == content[5:]


def test_an_altered_body_is_never_returned(behind: Open, tmp_path: Path) -> None:
    def alter(exchange: Exchange) -> Answer:
        status, headers, body = exchange.forward()
        return status, headers, body.replace(b"right", b"wrong")

    fault = Sometimes(alter)
    store, _requests = behind(fault)
    store.write("a", b"right")
    fault.numbers = {1}
    assert store.read("a") == b"right"
    fault.numbers = set(range(99))
    with pytest.raises(AlteredBody, match="is damaged"):
        store.read("a")
    with pytest.raises(AlteredBody, match="is damaged"):
        store.download("a", tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_errors_name_the_object_and_what_to_do(
    behind: Open, gcs_server: GCSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, requests = behind(lambda _: (403, [], b'{"error": {"message": "no storage.objects.get access"}}'))
    with pytest.raises(StorageError, match=r"folder/a: access denied.*no storage.objects.get") as caught:
        store.read("a")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in (caught.value.hint or "")
    assert len(requests) == 1  # not sent again
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    with pytest.raises(NotFound, match="there is no bucket 'no-such-bucket'"):
        open_store("gs://no-such-bucket/x").stat("a")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(Unreachable, match=r"no-such-bucket/x/a: Connection refused\n"):
        open_store("gs://no-such-bucket/x").read("a")


def test_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # else the library looks for a machine of Google
    with pytest.raises(AccessDenied, match=r"gs://bucket/x/a: no Google credentials were found\n") as caught:
        open_store("gs://bucket/x").read("a")
    assert "gcloud auth application-default login" in (caught.value.hint or "")
