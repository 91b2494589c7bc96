"""Files with a known address and digest, such as word vectors: `files.toml`."""

from __future__ import annotations

import tomllib
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from shutil import copyfileobj

from registry import paths
from registry.errors import MissingError
from registry.resources.download import Download

_TABLE = Path(__file__).parent / "files.toml"


@dataclass(frozen=True)
class KnownFile:
    """A file, in an archive or not.

    Args:
        name: Name in recipes.
        title: One line about its content.
        license: License terms.
        url: Address of the file, or of a .zip archive if there are `members`.
        bytes: Size of the download.
        sha256: Digest of the download.
        members: Files of the archive to keep. The first one is the named file.
    """

    name: str
    title: str
    license: str
    url: str
    bytes: int
    sha256: str
    members: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Path of the named file in the cache of downloads."""
        return self._place(self._kept[0])

    def cached(self) -> Path | None:
        """Return the path of the file, or None if it was not downloaded."""
        return self.path if all(self._place(member).is_file() for member in self._kept) else None

    def fetch(self) -> Path:
        """Return the path of the file. It is downloaded and checked, and an archive unpacked, if that was not done.

        Raises:
            DownloadError: If the server does not respond, or the digest is wrong.
            MissingError: If the archive lacks a member.
        """
        if (found := self.cached()) is not None:
            return found
        if not self.members:
            Download(self.url, self.path, self.bytes, self.sha256, label=self.name).run()
            return self.path
        archive = self.path.with_name(f"{self.path.name}.zip")
        Download(self.url, archive, self.bytes, self.sha256, label=self.name).run()
        with zipfile.ZipFile(archive) as packed:
            for member in self.members:
                draft = self._place(member).with_suffix(".new")
                try:
                    with packed.open(member) as source, draft.open("wb") as target:
                        copyfileobj(source, target, 1 << 20)
                except KeyError as error:
                    raise MissingError(f"{self.url} does not contain {member}", code="data.missing_file") from error
                draft.replace(self._place(member))
        archive.unlink()
        return self.path

    @property
    def _kept(self) -> tuple[str, ...]:
        return self.members or (self.name,)

    def _place(self, member: str) -> Path:
        return paths.downloads() / "files" / PurePosixPath(member).name


@cache
def known_files() -> dict[str, KnownFile]:
    """Return the known files by name."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return {
        name: KnownFile(name=name, **{**about, "members": tuple(about.get("members", ()))})
        for name, about in table.items()
    }
