"""A PostgreSQL of the test's own on loopback, in a folder that goes away with it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from tests.support.ports import unused_port

PASSWORD = "loopback only"


def binaries() -> Path | None:
    """Return the folder of the server's programs: PATH, what `pg_config` says, or Debian's place."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    if config := shutil.which("pg_config"):
        folder = Path(subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip())
        if (folder / "initdb").exists():
            return folder
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


def unusable() -> str | None:
    """Return why there can be no server here, or None."""
    if binaries() is None:
        return "no PostgreSQL server on this machine: apt-get install postgresql"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "no driver: pip install 'cse-registry[postgres]'"
    return None


@contextmanager
def server() -> Iterator[str]:
    """Start a server and yield the address of its database."""
    programs = binaries()
    assert programs is not None
    folder = Path(mkdtemp(prefix="cse-postgres-"))
    user = _owner(folder)
    secret = folder / "password"
    secret.write_text(PASSWORD, encoding="utf-8")
    if user is not None:
        shutil.chown(secret, user)
    data, port = folder / "data", unused_port()

    def program(name: str, *arguments: str) -> None:
        done = subprocess.run([programs / name, *arguments], user=user, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    program("initdb", "-D", str(data), "-U", "cse", "-A", "scram-sha-256", "--pwfile", str(secret), "--no-sync")
    options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off -c max_connections=60"
    program("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql://cse:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}/postgres"
    finally:
        program("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def _owner(folder: Path) -> str | None:
    """Give the folder to a user that may run a server, which root may not."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        shutil.chown(folder, name)
        return name
    raise AssertionError("PostgreSQL does not run as root, and there is no other user")
