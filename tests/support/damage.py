"""Ways in which a file is damaged: by a disk, a copy that broke off, or somebody's mistake."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random


def _flipped(file: Path, random: Random) -> None:
    content = bytearray(file.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)


def _cut(file: Path, random: Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: random.randrange(len(content))])


def _empty(file: Path, _: Random) -> None:
    file.write_bytes(b"")


def _random(file: Path, random: Random) -> None:
    file.write_bytes(random.randbytes(file.stat().st_size))


def _of_another_kind(file: Path, random: Random) -> None:
    kinds = [
        b"\x89PNG\r\n\x1a\n" + random.randbytes(200),
        b"[1, 2]\n",
        b"PK\x05\x06" + bytes(18),
        b"<html>404</html>\n",
    ]
    file.write_bytes(random.choice(kinds))


def _a_folder(file: Path, _: Random) -> None:
    file.unlink()
    file.mkdir()


def _odd_bytes(file: Path, random: Random) -> None:
    content = file.read_bytes()
    middle = random.randrange(len(content))
    file.write_bytes(content[:middle] + random.choice([b"\0", b"\xff\xfe", b"\xed\xa0\x80"]) + content[middle:])


WAYS: dict[str, Callable[[Path, Random], None]] = {
    "one bit flipped": _flipped,
    "cut off": _cut,
    "emptied": _empty,
    "random bytes": _random,
    "of another kind": _of_another_kind,
    "a folder": _a_folder,
    "odd bytes in the middle": _odd_bytes,
}


def put_back(folder: Path, copy: Path) -> None:
    """Make a folder hold what its copy holds."""
    for child in folder.iterdir():
        shutil.rmtree(child) if child.is_dir() else child.unlink()
    shutil.copytree(copy, folder, dirs_exist_ok=True)
