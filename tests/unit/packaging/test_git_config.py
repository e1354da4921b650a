"""``git_config``: a real git clones real repositories, from a folder, over HTTP and through ssh."""

from __future__ import annotations

import base64
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator, PyTorch
from cloudtrain.errors import CloudtrainError, InvalidJob, InvalidSource
from cloudtrain.packaging.git_clone import cloned
from cloudtrain.packaging.git_config import read_git_config

TOKEN = "ghp_TopSecretToken0123456789"
BACKEND = Path(subprocess.run(["git", "--exec-path"], capture_output=True, text=True).stdout.strip())


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=240
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two commits on main, one on a branch, and a tag."""
    folder = tmp_path_factory.mktemp("r") / "repo"
    (folder / "src").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "lib" / "helper.py").write_text("A = 1\n")
    (folder / "src" / "train.py").write_text("print('first')\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "tag", "v1")
    git(folder, "checkout", "-qb", "other")
    (folder / "src" / "train.py").write_text("print('other')\n")
    git(folder, "commit", "-qam", "two")
    git(folder, "checkout", "-q", "main")
    (folder / "src" / "train.py").write_text("print('second')\n")
    git(folder, "commit", "-qam", "three")
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No git configuration but this, and temporary folders that the test can look at."""
    for name in ("GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmpdir").mkdir()
    return tmp_path


def script(config: Mapping[str, Any], **fields: Any) -> str:
    """The text of the script in the clone."""
    with cloned(config, {"entry_point": "src/train.py", **fields}) as found:
        return Path(found.get("source_dir", ""), found["entry_point"]).read_text()


def test_branch_tag_commit_and_head(repository: Path) -> None:
    first, last = git(repository, "rev-parse", "v1"), git(repository, "rev-parse", "main")
    for config, text in (
        ({}, "second"),
        ({"branch": "other"}, "other"),
        ({"branch": "v1"}, "first"),
        ({"commit": first}, "first"),
        ({"commit": first[:9]}, "first"),
        ({"branch": "other", "commit": last}, "second"),
        ({"commit": "v1", "repo": repository.as_uri()}, "first"),
    ):
        assert script({"repo": str(repository), **config}) == f"print('{text}')\n", config


def test_a_job_has_the_files_and_the_commit(repository: Path, home: Path) -> None:
    def names(archive: Any) -> list[str]:
        with tarfile.open(archive.path) as packed:
            return [name for name in packed.getnames() if name.endswith(".py")]

    config = {"repo": str(repository), "branch": "main"}
    local = {"git_config": config, "platform": "local"}
    one = Estimator("train.py", source_dir="src", dependencies=["lib"], **local)
    submission = one.prepare()
    assert submission.archive and submission.job.source
    assert submission.job.source.git_commit == git(repository, "rev-parse", "main")
    assert sorted(names(submission.archive)) == ["lib/helper.py", "train.py"]
    assert (one.git_config, one.source_dir, one.entry_point) == (config, "src", "train.py")
    alone = PyTorch("src/train.py", **local).prepare()
    assert alone.archive and names(alone.archive) == ["train.py"]
    assert list((home / "tmpdir").glob("cloudtrain-git-*")) == []


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        ({"branch": "nowhere"}, {}, r"at nowhere cannot be cloned: couldn't find remote ref nowhere"),
        ({"commit": "beef"}, {}, r"at beef cannot be cloned: there is no such commit"),
        ({"commit": "f" * 40}, {}, r"at f{40} cannot be cloned"),
        ({}, {"entry_point": "src/trian.py"}, r"(?s)no entry_point 'src/trian.py'.*'train.py'"),
        ({}, {"source_dir": "source"}, r"(?s)no source_dir 'source'"),
        ({}, {"dependencies": ["nolib"]}, r"no dependencies 'nolib'"),
        ({}, {"entry_point": "../../etc/passwd"}, r"entry_point '../../etc/passwd' is not a path in"),
        ({}, {"entry_point": "/etc/passwd"}, r"entry_point '/etc/passwd' is not a path in"),
        ({}, {"source_dir": ".git", "entry_point": "config"}, r"source_dir '.git' is not a path in"),
        ({}, {"source_dir": "src", "entry_point": "../lib/../../x"}, r"is not a path in"),
    ],
)
def test_a_clone_without_a_path_fails_with_an_error_that_names_it(
    config: dict[str, str], fields: dict[str, Any], message: str, repository: Path, home: Path
) -> None:
    with pytest.raises(InvalidSource, match=message):
        script({"repo": str(repository), **config}, **fields)
    assert list((home / "tmpdir").iterdir()) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("https://x/y", "expected a dict"),
        ({}, "repo is missing"),
        ({"repo": "nowhere/at/all"}, "neither a URL nor a folder"),
        ({"repo": "ext::sh -c touch% x"}, "neither a URL nor a folder"),
        ({"repo": "--upload-pack=touch x"}, "looks like an option"),
        ({"repo": "https://x/y", "branch": "--all"}, "looks like an option"),
        ({"repo": "https://x/y", "brnach": "a"}, "Did you mean 'branch'"),
        ({"repo": "https://x/y", "2FA_enabled": "yes"}, "expected True or False"),
        ({"repo": "https://x/y", "token": "a\nusername=b"}, "contains a line break"),
        ({"repo": "https://x/y", "token": None}, "token: expected a string"),
        ({"repo": "https://x/y", "username": "ann"}, "belong together"),
        (
            {"repo": "https://x/y", "username": "a", "password": "b", "2FA_enabled": True},
            "Pass a token instead",
        ),
        ({"repo": "http://x/y", "token": "t"}, "unencrypted"),
        ({"repo": "https://x:port/y"}, "not a valid URL"),
        ({"repo": "https:///y"}, "names no host"),
        ({"repo": "ssh://ann:pw@host/y"}, "key in ssh-agent"),
    ],
)
def test_a_wrong_config_is_refused(config: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        read_git_config(config)


def test_credentials_are_those_of_the_sdk() -> None:
    def read(**fields: str) -> tuple[str, str | None, str | None]:
        found = read_git_config(fields)
        return found.repo, found.username, found.password

    url = "https://github.com/a/b.git"
    assert read(repo=url) == (url, None, None)
    assert read(repo=url, token="t", username="u", password="p") == (url, "u", "t")
    assert read(repo=url, token="t") == (url, "x-access-token", "t")
    assert read(repo="https://bitbucket.org/a", token="t")[1] == "x-token-auth"
    assert read(repo="https://u:p%40@github.com/a/b.git") == (url, "u", "p@")
    codecommit = "https://git-codecommit.us-east-1.amazonaws.com/v1/repos/a"
    with pytest.warns(UserWarning, match="no tokens"):
        assert read(repo=codecommit, token="t", username="u", password="p") == (codecommit, "u", "p")
    with pytest.warns(UserWarning, match="only for HTTPS"):
        assert read(repo="git@github.com:a/b.git", token="t") == ("git@github.com:a/b.git", None, None)
    assert TOKEN not in repr(read_git_config({"repo": url, "token": TOKEN}))


def test_a_link_out_of_the_repository_is_refused(repository: Path, tmp_path: Path) -> None:
    """Packing follows links: a repository could have any file of this machine uploaded."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    hostile = tmp_path / "hostile"
    git(tmp_path, "clone", "-q", str(repository), "hostile")
    os.symlink(tmp_path / "private", hostile / "src" / "data")
    os.symlink("data", hostile / "src" / "more")
    os.symlink("../lib/helper.py", hostile / "src" / "helper.py")
    git(hostile, "add", ".")
    git(hostile, "commit", "-qm", "links")
    one = Estimator("train.py", source_dir="src", git_config={"repo": str(hostile)}, platform="local")
    with pytest.raises(
        InvalidSource, match=r"src/(data|more) of the repository is a link to .*outside of it"
    ):
        one.prepare()
    with pytest.raises(InvalidSource, match="is a link"):
        script({"repo": str(hostile)})


@pytest.mark.parametrize(
    "paths",
    [
        {"entry_point": "train.py", "source_dir": "shared/private"},
        {"entry_point": "shared/private/train.py"},
        {"entry_point": "src/train.py", "dependencies": ["shared/private"]},
    ],
)
def test_a_folder_behind_a_link_out_of_the_repository_is_refused(
    paths: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "train.py").write_text("secret")
    git(tmp_path, "clone", "-q", str(repository), "hostile")
    hostile = tmp_path / "hostile"
    os.symlink(tmp_path, hostile / "shared")
    git(hostile, "add", "shared")
    git(hostile, "commit", "-qm", "link")
    one = Estimator(**paths, git_config={"repo": str(hostile)}, platform="local")
    with pytest.raises(InvalidSource, match=r"shared of the repository is a link to .*outside of it"):
        one.prepare()


class GitServer(BaseHTTPRequestHandler):
    """git's own server for HTTP, behind a password: any user with the token."""

    root: Path

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        given = base64.b64decode((self.headers["Authorization"] or "Basic ")[6:]).decode()
        if given.partition(":")[2] != TOKEN:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers["Content-Type"] or "",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers["Content-Encoding"] or "",
            "GIT_PROTOCOL": self.headers["Git-Protocol"] or "",
        }
        done = subprocess.run(
            [BACKEND / "git-http-backend"], input=body, env=environment, capture_output=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
        for name, value in {**fields, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = respond

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def http(repository: Path) -> Iterator[str]:
    GitServer.root = repository.parent
    with ThreadingHTTPServer(("127.0.0.1", 0), GitServer) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/repo/.git"
        server.shutdown()


@pytest.mark.skipif(not (BACKEND / "git-http-backend").exists(), reason="git has no http-backend here")
def test_a_private_repository_over_http(http: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the token. It is in no command line, no file, and no helper of the user stores it."""
    store = home / "stored"
    (home / "git_config_global").write_text(f"[credential]\n\thelper = store --file={store}\n")
    calls = home / "calls"
    wrapper = home / "bin" / "git"
    wrapper.parent.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_TRACE_CURL", str(home / "trace"))
    monkeypatch.setenv("GIT_TRACE_REDACT", "0")

    with cloned({"repo": http, "token": TOKEN}, {"entry_point": "src/train.py"}) as found:
        clone = Path(found["entry_point"]).parents[1]
        files = [path for path in (clone / ".git").rglob("*") if path.is_file()]
        assert TOKEN.encode() not in b"".join(path.read_bytes() for path in files)
    assert script({"repo": http.replace("//", f"//ann:{TOKEN}@"), "branch": "other"}) == "print('other')\n"
    assert "fetch" in calls.read_text()
    assert TOKEN not in calls.read_text()
    assert not store.exists()
    assert not (home / "trace").exists()

    job = Estimator("src/train.py", git_config={"repo": http, "token": TOKEN}, platform="local").prepare()
    assert TOKEN not in job.request.to_json()
    assert job.archive
    with tarfile.open(job.archive.path) as packed:
        assert not any(".git" in name.split("/") for name in packed.getnames())

    for wrong in ({}, {"token": "wrong-token-of-mine"}):
        with pytest.raises(CloudtrainError, match=r"(?s)cannot be cloned.*Pass a token") as caught:
            script({"repo": http, **wrong})
        assert "wrong-token" not in str(caught.value)


def test_a_server_that_leads_elsewhere_does_not_pass_the_token_on() -> None:
    """git follows the first redirect. The host that it leads to asks for a password, and gets none."""
    sent: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers["Authorization"])
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Leading(Elsewhere):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{elsewhere.server_port}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as elsewhere,
        ThreadingHTTPServer(("127.0.0.1", 0), Leading) as leading,
    ):
        for server in (elsewhere, leading):
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with pytest.raises(InvalidSource, match="cannot be cloned"):
            script({"repo": f"http://127.0.0.1:{leading.server_port}/repo", "token": TOKEN})
        for server in (elsewhere, leading):
            server.shutdown()
    assert set(sent) == {None}


def test_a_repository_through_ssh(repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh runs the command that git asks for; here, a program in its place does, without another machine."""
    ssh = home / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        f'#!/bin/sh\necho "$@" >> {home}/ssh.log\n'
        'if [ "$1" = -G ]; then exit 0; fi\n'
        'for last; do :; done\nexec sh -c "$last"\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    assert script({"repo": f"git@example.test:{repository}", "branch": "other"}) == "print('other')\n"
    assert script({"repo": f"ssh://git@example.test{repository}"}) == "print('second')\n"
    for line in (home / "ssh.log").read_text().splitlines():
        assert "BatchMode=yes" in line


def test_git_that_is_not_installed(repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(InvalidSource, match="git is not installed"):
        script({"repo": str(repository)})
