"""A catalog of a test's own, and a network that it fills."""

import shutil
import sys
from pathlib import Path

import pytest

from registry import paths
from registry.errors import MissingError
from registry.resources import catalog, hub

HEAD = """
title = "Toy"
kind = "{kind}"
language = "en"
license = "none"
citation = "nobody"
columns = {columns}
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A catalog of its own: write(name, body) adds an entry, and CSE_DATA is a folder of the test's."""
    folder = tmp_path / "entries"
    folder.mkdir()
    monkeypatch.setattr(catalog, "FOLDER", folder)
    monkeypatch.setenv("CSE_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    catalog.entry.cache_clear()

    def write(name, body, kind="text", columns='["text"]'):
        (folder / f"{name}.toml").write_text(HEAD.format(kind=kind, columns=columns) + body, encoding="utf-8")
        return tmp_path / "data"

    yield write
    catalog.entry.cache_clear()


class Network:
    """Repositories and addresses that give what was put there, and count what they are asked.

    Args:
        folder: Where to keep what is published and what is downloaded.
    """

    def __init__(self, folder: Path) -> None:
        self.published, self.downloaded = folder / "published", folder / "downloaded"
        self.asked: list[str] = []

    def publish(self, where: str, content: bytes | Path) -> None:
        """Put a file at "owner/name@revision/file", or at an address."""
        place = self.published / where.replace("https://", "")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.read_bytes())

    def cached(self, repository, names):
        folder = self.downloaded / f"{repository.id}@{repository.revision}"
        return folder if all(any(folder.glob(name)) for name in names) else None

    def fetch(self, repository, names, *, force=False):
        where = f"{repository.id}@{repository.revision}"
        self.asked.append(where)
        for name in names:
            found = sorted((self.published / where).glob(name))
            if not found:
                raise MissingError(f"{where} has no {name}")
            for path in found:
                place = self.downloaded / where / path.relative_to(self.published / where)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
        return self.downloaded / where

    def download(self, url, target, *, label="", force=False):
        self.asked.append(url)
        path = self.published / url.removeprefix("https://")
        if not path.is_file():
            raise MissingError(f"{url}: 404")
        if force or not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A `Network`, in place of the hub and of everything else out there."""
    made = Network(tmp_path / "network")
    monkeypatch.setattr(hub, "cached", made.cached)
    monkeypatch.setattr(hub, "fetch", made.fetch)
    monkeypatch.setattr(sys.modules["registry.resources.catalog"], "download", made.download)
    monkeypatch.setattr(paths, "downloads", lambda: made.downloaded / "addresses")
    return made
