"""Is a jar used only when it is exactly the one that was locked?

It must not reach beyond loopback: a repository of its own serves the files.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from compose.local.child import LOOPBACK
from compose.local.jars import LOCK, JarUnavailable, class_path, locked

CONTENT = b"the locked bytes"
FILE = "org/example/part/1.0/part-1.0.jar"
CANARY = "canary-folder"  # part of the repository's address, which no error may show


class _QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        return


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A Maven repository on loopback: its folder, and its name and address."""
    folder = tmp_path / "repository" / CANARY
    folder.mkdir(parents=True)
    server = ThreadingHTTPServer((LOOPBACK, 0), partial(_QuietFiles, directory=str(folder.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, {"local": f"http://{LOOPBACK}:{server.server_port}/{CANARY}"}
    server.shutdown()
    server.server_close()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "jgo.lock.toml"
    digest = hashlib.sha256(CONTENT).hexdigest()
    row = f'groupId = "org.example"\nartifactId = "part"\nversion = "1.0"\nsha256 = "{digest}"\n'
    path.write_text(f"[[dependencies]]\n{row}", encoding="utf-8")
    return path


def _publish(folder: Path, content: bytes) -> None:
    path = folder / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    Path(f"{path}.sha1").write_text(hashlib.sha1(content).hexdigest())


def test_the_committed_lock_pins_every_jar_and_names_no_address() -> None:
    jars = locked()
    assert len({(jar.group, jar.artifact) for jar in jars}) == len(jars)
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {"4.2.1"}
    assert "://" not in LOCK.read_text(encoding="utf-8")


def test_a_jar_is_fetched_once_and_then_found(
    repository: tuple[Path, dict[str, str]], lock: Path, tmp_path: Path
) -> None:
    folder, repositories = repository
    _publish(folder, CONTENT)
    said: list[str] = []
    [jar] = class_path(tmp_path / "cache", said.append, lock=lock, repositories=repositories)
    assert jar.read_bytes() == CONTENT
    assert len(said) == 1
    (folder / FILE).unlink()
    assert class_path(tmp_path / "cache", said.append, lock=lock, repositories=repositories) == [jar]
    assert len(said) == 1


def test_a_jar_damaged_in_the_cache_is_fetched_again(
    repository: tuple[Path, dict[str, str]], lock: Path, tmp_path: Path
) -> None:
    folder, repositories = repository
    _publish(folder, CONTENT)
    [jar] = class_path(tmp_path / "cache", lock=lock, repositories=repositories)
    jar.write_bytes(b"damaged")
    [again] = class_path(tmp_path / "cache", lock=lock, repositories=repositories)
    assert again.read_bytes() == CONTENT


def test_an_altered_jar_is_refused_and_not_kept(
    repository: tuple[Path, dict[str, str]], lock: Path, tmp_path: Path
) -> None:
    folder, repositories = repository
    _publish(folder, CONTENT + b", altered")
    with pytest.raises(JarUnavailable, match=r"org\.example:part:1\.0") as refused:
        class_path(tmp_path / "cache", lock=lock, repositories=repositories)
    assert refused.value.code == "jar_altered"
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_absent_jar_is_named_without_the_address_it_was_sought_at(
    repository: tuple[Path, dict[str, str]], lock: Path, tmp_path: Path
) -> None:
    with pytest.raises(JarUnavailable, match=r"org\.example:part:1\.0") as refused:
        class_path(tmp_path / "cache", lock=lock, repositories=repository[1])
    assert refused.value.code == "jar_unavailable"
    assert CANARY not in str(refused.value)
    assert refused.value.__cause__ is None
