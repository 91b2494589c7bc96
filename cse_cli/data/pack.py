"""One archive of all that recipes need, for machines without internet: `cse data pack`, then `cse data unpack`."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cse_cli import __version__
from registry import hub, models
from registry.catalogue.find import SHIPPED, data_folder
from registry.errors import CseError
from registry.paths import downloads, state_directory

MANIFEST = "manifest.json"

Progress = Callable[[str, int, int], None]
"""Called with the file being copied, bytes done, and bytes in all."""


@dataclass(frozen=True)
class Packed:
    """What an archive holds.

    Args:
        archive: The file.
        names: Names of its files: below `hub/`, `data/`, `models/` or `downloads/`.
        bytes: Their size.
        recipes: What they are for.
        skipped: How many were already there, when unpacking.
    """

    archive: Path
    names: tuple[str, ...]
    bytes: int
    recipes: tuple[str, ...]
    skipped: int = 0


def roots() -> dict[str, Path]:
    """Return the folder of this machine that each folder of an archive stands for.

    Without CSE_DATA and CSE_MODELS, data and models lie in folders of the state directory, where they are found too.
    """
    return {
        "hub": hub.cache_folder(),
        "data": data_folder() or state_directory() / "data",
        "models": models.own_folder(),
        "downloads": downloads(),
    }


def archive_names(paths: Sequence[Path]) -> dict[str, Path]:
    """Return name in the archive → file, of files and of folders whole; what comes with the package is left out.

    A file that lies in none of the folders that an archive knows is filed by its name below `data/`.
    """
    folders = {name: folder.absolute() for name, folder in roots().items()}
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    found: dict[str, Path] = {}
    for file in [*files, *_commit_files(files, folders["hub"])]:
        place = file.absolute()
        if place.is_dir() or any(place.is_relative_to(folder) for folder in (models.PRETRAINED, SHIPPED)):
            continue
        root = next((name for name, folder in folders.items() if place.is_relative_to(folder)), None)
        name = f"data/{place.name}" if root is None else f"{root}/{place.relative_to(folders[root]).as_posix()}"
        if found.setdefault(name, file) != file:
            raise CseError(
                f"two files would both be {name}: {found[name]} and {file}", "put one of them below $CSE_DATA"
            )
    return found


def _commit_files(files: Sequence[Path], cache: Path) -> list[Path]:
    """Return the hub cache's files that say which commit a branch is at and what it holds, of all snapshots."""
    found: dict[Path, None] = {}
    for file in files:
        parts = file.absolute().relative_to(cache).parts if file.absolute().is_relative_to(cache) else ()
        if len(parts) > 3 and parts[1] == "snapshots":
            repository, commit = cache / parts[0], parts[2]
            refs = [ref for ref in repository.glob("refs/**/*") if ref.is_file() and ref.read_text().strip() == commit]
            found |= dict.fromkeys([*refs, *repository.glob(f"trees/{commit}.json")])
    return list(found)


def write_archive(files: Mapping[str, Path], recipes: Sequence[str], archive: Path, progress: Progress) -> Packed:
    """Write files into an archive, whole or not at all; links become the files they lead to.

    Args:
        files: Name in the archive → file.
        recipes: The recipes they are for, as the manifest says.
        archive: File to write, a `.tar`.
        progress: Called for each file.

    Raises:
        CseError: There is such a file already, or the disk refuses.
    """
    if archive.exists():
        raise CseError(f"{archive} exists already", "move it away, or give another name with --output")
    sizes = {name: path.stat().st_size for name, path in files.items()}
    total, done = sum(sizes.values()), 0
    draft = archive.with_name(f"{archive.name}.part")
    try:
        digests = {name: _digest(path) for name, path in files.items()}
        manifest = {"schema_version": 1, "cse": __version__, "recipes": list(recipes), "sha256": digests}
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(draft, "w", dereference=True) as tar:
            content = json.dumps(manifest, indent=1).encode()
            about = tarfile.TarInfo(MANIFEST)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
            for name, path in files.items():
                progress(name, done, total)
                tar.add(path.resolve(), arcname=name, recursive=False)
                done += sizes[name]
        progress(archive.name, total, total)
        draft.replace(archive)
    except OSError as error:
        raise CseError(
            f"{archive}: {error.strerror or error}", "free some disk space, or write it elsewhere"
        ) from error
    finally:
        with suppress(OSError):  # "not a directory", where the archive was to lie below a file
            draft.unlink(missing_ok=True)
    return Packed(archive, tuple(files), total, tuple(recipes))


def unpack_archive(archive: Path, progress: Progress) -> Packed:
    """Put the files of an archive where `cse` finds them; those already there with the same content are left alone.

    Every file is checked against the manifest's SHA-256 and written whole or not at all; nothing else is written.

    Raises:
        CseError: It is no archive of `cse data pack`, it is damaged, or another file stands in the way.
    """
    if not archive.is_file():
        what = f"{archive}: not a file" if archive.exists() else f"no archive at {archive}"
        raise CseError(what, "make one with `cse data pack RECIPE`")
    names: list[str] = []
    done = skipped = 0
    try:
        with tarfile.open(archive, "r:") as tar:
            recipes, digests = _manifest(archive, tar)
            total = archive.stat().st_size
            for member in tar:
                if member.name == MANIFEST:
                    continue
                target = _target(archive, member, digests)
                progress(member.name, done, total)
                skipped += not _extract(archive, tar, member, target, digests[member.name])
                names.append(member.name)
                done += member.size
    except tarfile.TarError as error:
        raise CseError(f"{archive}: damaged, or not an archive: {error}", "copy it again") from error
    except OSError as error:
        raise CseError(f"{error.filename or archive}: {error.strerror or error}", "free some disk space") from error
    if missing := set(digests) - set(names):
        raise CseError(f"{archive}: {len(missing)} files are cut off, among them {min(missing)}", "copy it again")
    progress(archive.name, total, total)
    return Packed(archive, tuple(names), done, recipes, skipped)


def _manifest(archive: Path, tar: tarfile.TarFile) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the recipes, and the SHA-256 of each file."""
    first = tar.next()
    content = tar.extractfile(first) if first is not None and first.name == MANIFEST else None
    try:
        manifest = json.load(content) if content is not None else {}
        return tuple(map(str, manifest["recipes"])), {str(k): str(v) for k, v in manifest["sha256"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CseError(f"{archive}: not an archive of `cse data pack`: it has no {MANIFEST}") from error


def _target(archive: Path, member: tarfile.TarInfo, digests: Mapping[str, str]) -> Path:
    """Return where a member goes; an archive from elsewhere can write below the known folders only."""
    folders, parts = roots(), PurePosixPath(member.name).parts
    if not member.isreg() or member.name not in digests or parts[0] not in folders or {"..", "/"} & set(parts):
        raise CseError(f"{archive}: it holds {member.name!r}, which is no file of `cse data pack`", "do not use it")
    return folders[parts[0]].joinpath(*parts[1:])


def _extract(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, digest: str) -> bool:
    """Write one file; return False where it was there already.

    Raises:
        CseError: Another file is there, or the archive's is damaged.
    """
    if target.exists():
        branch = PurePosixPath(member.name).match("hub/*/refs/*")
        if branch or _digest(target) == digest:
            return False  # this machine's branches stay at their commits
        raise CseError(f"{target} exists already, with other content", "move it away, then unpack again")
    content = tar.extractfile(member)
    assert content is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.part")
    total = hashlib.sha256()
    try:
        with draft.open("wb") as file:
            while block := content.read(1 << 20):
                total.update(block)
                file.write(block)
        if total.hexdigest() != digest:
            raise CseError(f"{archive}: {member.name} is damaged: its SHA-256 is not the manifest's", "copy it again")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return True


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
