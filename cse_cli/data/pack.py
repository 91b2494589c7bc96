"""Archives of everything that recipes need, for machines without internet: `cse data pack` and `cse data unpack`.

An archive is a `.tar.gz`, whose CRC-32 is checked before any file is moved to its place.
"""

from __future__ import annotations

import filecmp
import gzip
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from cse_cli.data.columns import made_columns
from registry.errors import CseError
from registry.paths import downloads, make_folder, state_directory
from registry.resources import hub, models
from registry.resources.catalog.find import SHIPPED, data_folder

Progress = Callable[[str, int, int], None]
"""Called with the name of the current file, the number of bytes done and the total number of bytes."""


@dataclass(frozen=True)
class Packed:
    """Archive, the names of its files, their size, and the number of files that existed before unpacking."""

    archive: Path
    names: tuple[str, ...]
    bytes: int
    skipped: int = 0


def archive_directories() -> dict[str, Path]:
    """Return the local directory for each top-level directory of an archive.

    Without CSE_DATA and CSE_MODELS, data and models are in subdirectories of the state directory.
    """
    return {
        "hub": hub.cache_folder(),
        "data": data_folder() or state_directory() / "data",
        "models": models.own_folder(),
        "downloads": downloads(),
        "columns": made_columns(),
    }


def archive_names(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the files to pack, by their names in the archive. Directories count with all of their files.

    Files of the package are omitted. A file outside of the directories of an archive is packed below `data/`.
    """
    roots = {name: directory.absolute() for name, directory in archive_directories().items()}
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    found: dict[str, Path] = {}
    for file in [*files, *_commit_files(files, roots["hub"])]:
        place = file.absolute()
        if place.is_dir() or place.is_relative_to(models.PRETRAINED) or place.is_relative_to(SHIPPED):
            continue
        root = next((name for name, directory in roots.items() if place.is_relative_to(directory)), None)
        name = f"data/{place.name}" if root is None else f"{root}/{place.relative_to(roots[root]).as_posix()}"
        if found.setdefault(name, file) != file:
            raise CseError(
                f"the files '{found[name]}' and '{file}' have the same name in the archive, {name}",
                "move one of them below $CSE_DATA",
                code="data.same_name_in_archive",
            )
    return found


def _commit_files(files: Sequence[Path], cache: Path) -> list[Path]:
    """Return the files of the Hub's cache that map branches to commits and commits to files, for all snapshots."""
    found: dict[Path, None] = {}
    for file in files:
        parts = file.absolute().relative_to(cache).parts if file.absolute().is_relative_to(cache) else ()
        if len(parts) > 3 and parts[1] == "snapshots":
            repository, commit = cache / parts[0], parts[2]
            refs = [ref for ref in repository.glob("refs/**/*") if ref.is_file() and ref.read_text().strip() == commit]
            found |= dict.fromkeys([*refs, *repository.glob(f"trees/{commit}.json")])
    return list(found)


def write_archive(files: Mapping[str, Path], archive: Path, progress: Progress) -> Packed:
    """Write files, by their names, to an archive atomically. Symbolic links are replaced by their targets.

    Raises:
        CseError: If the archive exists or cannot be written.
    """
    if archive.exists():
        raise CseError(f"'{archive}' exists", "move it, or use another name: --output", code="data.output_exists")
    total, done = sum(path.stat().st_size for path in files.values()), 0
    draft = archive.with_name(f"{archive.name}.part")
    with _explained_errors(archive):
        try:
            archive.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(draft, "w:gz", dereference=True, compresslevel=1) as tar:
                for name, path in files.items():
                    progress(name, done, total)
                    tar.add(path.resolve(), arcname=name, recursive=False)
                    done += path.stat().st_size
            draft.replace(archive)
        finally:
            with suppress(OSError):  # a file in the place of the directory
                draft.unlink(missing_ok=True)
    progress(archive.name, total, total)
    return Packed(archive, tuple(files), total)


def unpack_archive(archive: Path, progress: Progress) -> Packed:
    """Move the files of an archive to the local directories. Equal files that exist are kept.

    Raises:
        CseError: If the archive is damaged or comes from another program, or a different file exists.
    """
    if not archive.is_file():
        what = "is not a file" if archive.exists() else "does not exist"
        raise CseError(f"archive '{archive}' {what}", "create one: cse data pack RECIPE", code="data.no_archive")
    names, done, skipped = [], 0, 0
    make_folder(state_directory())
    with _explained_errors(archive), TemporaryDirectory(dir=state_directory(), prefix="unpack-") as directory:
        stage = Path(directory)
        with gzip.open(archive) as content:
            with tarfile.open(fileobj=content, mode="r|") as tar:
                for member in tar:
                    progress(member.name, done, archive.stat().st_size)
                    _local_path(archive, member)
                    tar.extract(member, stage, filter="data")
                    names.append(member)
                    done += member.size
            while content.read(1 << 20):  # the CRC-32 comes last
                pass
        for member in names:
            skipped += not _move(stage / member.name, _local_path(archive, member))
    progress(archive.name, done, done)
    return Packed(archive, tuple(member.name for member in names), done, skipped)


@contextmanager
def _explained_errors(archive: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CseError(
            f"archive '{archive}' is damaged, or not an archive of `cse data pack`: {error}",
            "copy it again",
            code="data.damaged_archive",
        ) from error
    except OSError as error:
        raise CseError(
            f"{error.filename or archive}: {error.strerror or error}",
            "free some disk space, or use another directory",
            code="data.archive_not_writable",
        ) from error


def _local_path(archive: Path, member: tarfile.TarInfo) -> Path:
    """Return the local path of a file, which must be in one of the directories of an archive."""
    directories, parts = archive_directories(), PurePosixPath(member.name).parts
    if not member.isreg() or len(parts) < 2 or parts[0] not in directories or ".." in parts:
        raise CseError(
            f"archive '{archive}' contains '{member.name}', which `cse data pack` does not write",
            "do not use this archive",
            code="data.foreign_archive",
        )
    return directories[parts[0]].joinpath(*parts[1:])


def _move(file: Path, target: Path) -> bool:
    """Move a file to its place. Return False if it exists there. Raise `CseError` if it has other content."""
    if target.exists():
        if "/refs/" not in str(target) and not filecmp.cmp(file, target, shallow=False):
            raise CseError(
                f"'{target}' exists with other content", "move it and unpack again", code="data.other_file_exists"
            )
        return False  # branches of this machine keep their commits
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.part")
    shutil.move(file, draft)
    draft.replace(target)
    return True
