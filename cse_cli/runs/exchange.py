"""Archives of finished runs without weights: `cse runs export` and `cse runs import`.

An archive is a ZIP file: `cse-runs.json` with its version, `plans.jsonl` with the plans of seeds, and the files of each
run in a directory named by its ID. The same runs always give the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from cse_cli.core.formatting import counted
from cse_cli.core.identity import Plan
from cse_cli.core.paths import runs
from cse_cli.runs import plans
from cse_cli.runs.control import with_children
from cse_cli.runs.events import FILE, read_history
from cse_cli.runs.index import RecordedRun, all_runs, find_run, parse_result
from cse_cli.runs.record import ABOUT, RESULT, About, folder_of
from registry.errors import CseError, UnknownNameError, suggestion
from registry.machinery.validation import describe
from registry.paths import make_folder, write_atomically

MANIFEST = "cse-runs.json"
PLANS = plans.FILE
_VERSION = {"format": "cse runs", "version": 1}
_FILES = r"run\.toml|recipe\.toml|events\.jsonl|result\.json|environment\.json|log\.txt"
_FILE = re.compile(rf"{_FILES}|series/[\w.-]+\.npz|figures/[\w.-]+\.(?:svg|png)", re.ASCII)
_SMALL_FILE = re.compile(_FILES, re.ASCII)
_RUN_ID = re.compile(r"[0-9a-z]{1,64}")
_MOST_BYTES = 2**30
"""Largest size of an archived run. Curves and pairs need about a thousandth of it."""


def find_exportable(names: Sequence[str], studies: Sequence[str]) -> tuple[list[RecordedRun], int]:
    """Return the finished runs of these names (with child runs) or studies, or all, and the number of skipped runs."""
    known = all_runs()
    found = with_children([find_run(name, known) for name in names], known) if names or studies else known
    for study in studies:
        of_study = [run for run in known if run.about.study == study or run.about.study.startswith(f"{study}/")]
        if not of_study:
            started = {run.about.study.rsplit("/", 2)[0] for run in known} - {""}
            message = f"--study: no run of a study '{study}' in {runs()}.{suggestion(study, started)}"
            raise UnknownNameError(message, "list all runs: cse runs ls", code="runs.unknown_study")
        found += [run for run in of_study if run not in found]
    finished = [run for run in found if run.end == "finished" and run.unreadable is None]
    if not finished:
        action = "list finished runs: cse runs ls --status finished"
        raise CseError("no finished run to export", action, code="runs.nothing_to_export")
    return finished, len(found) - len(finished)


def export_runs(found: Sequence[RecordedRun], file: Path, *, small: bool = False) -> int:
    """Write finished runs to an archive, and return its size in bytes. `small` omits figures and scores of pairs."""
    written = _SMALL_FILE if small else _FILE
    if file.exists():
        with _opened(file):  # only an archive of runs is replaced
            pass
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_member(MANIFEST), json.dumps(_VERSION))
            archive.writestr(_member(PLANS), plans.lines_of({run.about.experiment for run in found}))
            for run in sorted(found, key=lambda run: run.run_id):
                for path in sorted(path for path in run.about.path.rglob("*") if path.is_file()):
                    name = path.relative_to(run.about.path).as_posix()
                    if written.fullmatch(name):
                        archive.writestr(_member(f"{run.run_id}/{name}"), path.read_bytes())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file.stat().st_size


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)  # its time is always 1980-01-01
    member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    return member


def import_runs(file: Path) -> tuple[int, int]:
    """Import the runs of an archive, and return the number of new runs and of runs that already exist.

    Each run is imported completely or not at all.
    """
    if not file.exists():
        message = f"archive {file} does not exist"
        raise CseError(message, "use a file from `cse runs export`", code="runs.missing_archive")
    with _opened(file) as archive:
        members = _members(archive, file)
        new = {run_id: names for run_id, names in members.items() if not folder_of(run_id).exists()}
        for run_id, names in new.items():
            draft = runs() / f".{run_id}.{os.getpid()}"
            try:
                for name, member in names.items():
                    make_folder((draft / name).parent)
                    (draft / name).write_bytes(archive.read(member))
                _adopt(draft, run_id, f"archive {file.name}")
            except (FileNotFoundError, ValueError, TypeError) as error:
                why = describe(error) if isinstance(error, ValidationError) else str(error)
                raise _not_an_archive(file, f"run {run_id}: {why}") from error
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        if PLANS in archive.namelist():
            plans.record_lines(archive.read(PLANS).decode())
    return len(new), len(members) - len(new)


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            if json.loads(archive.read(MANIFEST)) != _VERSION:
                raise _not_an_archive(file, f"{MANIFEST} names another version")
            yield archive
    # RuntimeError: a member is encrypted. NotImplementedError: an unknown compression.
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, RuntimeError, NotImplementedError, zlib.error) as error:
        raise _not_an_archive(file, str(error)) from error


def _members(archive: zipfile.ZipFile, file: Path) -> Mapping[str, Mapping[str, zipfile.ZipInfo]]:
    """Return ID of each run → path in its directory → member. Only names that `export_runs` writes are accepted."""
    found: dict[str, dict[str, zipfile.ZipInfo]] = defaultdict(dict)
    for member in archive.infolist():
        run_id, _, name = member.filename.partition("/")
        if member.filename in (MANIFEST, PLANS):
            continue
        if not _RUN_ID.fullmatch(run_id) or not _FILE.fullmatch(name) or name in found[run_id]:
            raise _not_an_archive(file, f"unexpected member {member.filename!r}")
        found[run_id][name] = member
    for run_id, members in found.items():
        if sum(member.file_size for member in members.values()) > _MOST_BYTES:
            raise _not_an_archive(file, f"run {run_id} has more than {counted(_MOST_BYTES, 'byte')}")
    return found


def _adopt(draft: Path, run_id: str, origin: str) -> None:
    """Check a finished record from elsewhere, note its `origin`, and move it to its place."""
    text = (draft / ABOUT).read_text(encoding="utf-8")
    about, history = About.of_toml(text), read_history(draft)
    if about.run_id != run_id:
        raise ValueError(f"{ABOUT} describes run {about.run_id}")
    if not about.summary:
        parse_result(about, (draft / RESULT).read_text(encoding="utf-8"))
    if history.damaged or history.end is None or history.end.kind != "finished":
        raise ValueError(f"{FILE} is damaged, or the run is not finished")
    if (plan := tomllib.loads(text).get("plan")) is not None:  # of version 0.1
        plans.record_plan(about.experiment, Plan.model_validate(plan))
    write_atomically(draft / ABOUT, about.model_copy(update={"pulled": origin}).to_toml())
    draft.rename(folder_of(run_id))


def _not_an_archive(file: Path, why: str) -> CseError:
    message = f"{file} is not an archive of runs, or it is damaged: {why}"
    return CseError(message, "export the runs again: cse runs export FILE", code="runs.invalid_archive")
