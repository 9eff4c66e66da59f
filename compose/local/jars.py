"""Brings the broker's jars onto this machine, each checked against `jgo.lock.toml`.

It must not start anything, and must not use a jar whose hash is not in the lock.
"""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from schemas.errors import BackstopError

SPEC = Path(__file__).with_name("jgo.toml")
LOCK = Path(__file__).with_name("jgo.lock.toml")

DOWNLOADS_AT_ONCE_MAX = 8  # 45 jars of about 1 MB: the wait is the round trip, not the line
DOWNLOAD_TIMEOUT_S = 60  # per request; the largest jar is 9 MB, so 150 kB/s is enough


class JarUnavailable(BackstopError):
    """A jar could not be fetched, or is not the one that was locked."""

    remedy = "Check that this machine reaches Maven Central (directly or by HTTPS_PROXY), then start again."


@dataclasses.dataclass(frozen=True, slots=True)
class Jar:
    """One locked artifact: Maven coordinates and the SHA-256 of its bytes (hex)."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name in our cache; the hash keeps two builds of one version apart."""
        return f"{self.artifact}-{self.version}-{self.sha256[:12]}.jar"


def locked(lock: Path = LOCK) -> tuple[Jar, ...]:
    """Every jar of the lock, in class path order."""
    rows = tomllib.loads(lock.read_text(encoding="utf-8"))["dependencies"]
    return tuple(Jar(row["groupId"], row["artifactId"], row["version"], row["sha256"]) for row in rows)


def default_cache() -> Path:
    """One cache per user, so that a second data folder does not download again."""
    return Path.home() / ".cache" / "backstop" / "jars"


def class_path(
    cache: Path | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
    *,
    lock: Path = LOCK,
    repositories: Mapping[str, str] | None = None,
) -> list[Path]:
    """The locked jars as files, fetched when absent; every hash is checked on every call (about 0.1 s).

    `repositories` (name to URL) replaces Maven Central, for a mirror.
    Raises JarUnavailable, naming the coordinates.
    """
    folder = cache or default_cache()
    folder.mkdir(parents=True, exist_ok=True)
    jars = locked(lock)
    absent = [jar for jar in jars if not _is_intact(folder / jar.file_name, jar)]
    if absent:
        on_progress(f"fetching {len(absent)} of {len(jars)} jars of Apache Kafka (43 MB, once per user)")
        with (
            tempfile.TemporaryDirectory(dir=folder) as staging,
            ThreadPoolExecutor(DOWNLOADS_AT_ONCE_MAX) as pool,
        ):
            list(pool.map(lambda jar: _fetch(jar, Path(staging), folder, repositories), absent))
    return [folder / jar.file_name for jar in jars]


def _is_intact(path: Path, jar: Jar) -> bool:
    return path.is_file() and _sha256(path) == jar.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch(jar: Jar, staging: Path, folder: Path, repositories: Mapping[str, str] | None) -> None:
    """Download into `staging`, check, then move into place in one step: two starts at once do no harm."""
    from jgo.maven import MavenContext

    remotes = dict(repositories) if repositories is not None else None
    context = MavenContext(
        repo_cache=staging, local_repos=[], remote_repos=remotes, timeout=DOWNLOAD_TIMEOUT_S
    )
    component = context.project(jar.group, jar.artifact).at_version(jar.version)
    try:
        fetched = Path(component.artifact().resolve())
    except Exception as error:  # noqa: BLE001 - its text may hold an address: only its name is kept
        sentence = f"{jar.group}:{jar.artifact}:{jar.version} could not be fetched ({type(error).__name__})"
        raise JarUnavailable(sentence, code="jar_unavailable") from None
    if _sha256(fetched) != jar.sha256:
        sentence = (
            f"{jar.group}:{jar.artifact}:{jar.version} is not the file that was locked: SHA-256 differs"
        )
        raise JarUnavailable(sentence, code="jar_altered", remedy="Do not use it; find out who altered it.")
    fetched.replace(folder / jar.file_name)


def write_lock(spec: Path = SPEC, lock: Path = LOCK) -> int:
    """Resolve the coordinates of `spec` and lock what came out; returns the number of jars."""
    from jgo import __version__
    from jgo.env import LockFile
    from jgo.maven import MavenContext
    from jgo.parse import Coordinate

    names = tomllib.loads(spec.read_text(encoding="utf-8"))["dependencies"]["coordinates"]
    with tempfile.TemporaryDirectory() as staging:
        context = MavenContext(repo_cache=Path(staging), local_repos=[], timeout=DOWNLOAD_TIMEOUT_S)
        coordinates = [dataclasses.replace(Coordinate.parse(name), scope="compile") for name in names]
        inputs, rest = context.resolver.resolve([context.create_dependency(c) for c in coordinates])
        needed = [*inputs, *(d for d in rest if d.scope in {"compile", "runtime"})]
        locked_file = LockFile.from_resolved_dependencies(needed, environment_name="broker")
    locked_file.jgo_version = __version__
    locked_file.save(lock)
    return len(needed)


if __name__ == "__main__":
    print(f"{write_lock()} jars locked in {LOCK.name}")
