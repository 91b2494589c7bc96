"""Finished runs go into an archive and come out the same; anything else in an archive is refused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cse_cli.core.identity import Identity, Plan
from cse_cli.core.results import read_series, write_series
from cse_cli.runs import exchange
from cse_cli.runs.claim import claim
from cse_cli.runs.index import RecordedRun, all_runs, read_run
from cse_cli.runs.record import About, RunRecord, folder_of, read_recipe
from tests.cse_cli.runs.conftest import Runs
from tests.support.records import recorded, result

RESOLVED = {"title": "T", "train": {"steps": 250, "seed": 1}}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Go to another state directory."""
    return lambda: monkeypatch.setenv("CSE_HOME", str(tmp_path / "elsewhere"))


def record(seed: int = 1, **about: object) -> RunRecord:
    """Record a finished run of two planned seeds with every kind of file."""
    plan = Plan(seeds=(1, 2), made=datetime(2026, 11, 21, tzinfo=UTC))
    made = recorded(result(seed=seed, identity=Identity(settings="a"), plan=plan), resolved=RESOLVED, **about)
    write_series({"stsb": {"gold": [1.0, 2.0], "cosine": [0.5, 0.25]}}, made.path / "series")
    files = ("log.txt", "environment.json", "figures/curve.svg", "model/weights", "mirrors/mlflow.json", "a.pt")
    for name in files:
        (made.path / name).parent.mkdir(exist_ok=True)
        (made.path / name).write_text("{}")
    return made


def test_a_run_is_imported_as_it_was(runs: Runs, elsewhere: Callable[[], None], tmp_path: Path) -> None:
    made = record()
    before, archive = read_run(made.run_id), str(tmp_path / "a.zip")
    files = {path.relative_to(made.path).as_posix() for path in made.path.rglob("*") if path.is_file()}
    code, out, err = runs("export", archive)
    assert (code, out.startswith(f"{archive}: 1 run, "), err) == (0, True, "")
    elsewhere()
    assert runs("import", archive) == (0, "1 run imported\n", "")
    after = read_run(made.run_id)
    assert after.about == before.about.model_copy(update={"pulled": "archive a.zip"})
    assert (after.result, after.state, after.started) == (before.result, "FINISHED", before.started)
    assert after.result.plan.seeds == (1, 2)
    assert read_recipe(made.run_id) == RESOLVED
    assert list(read_series(after.about.path / "series")["stsb"]["cosine"]) == [0.5, 0.25]
    new = {path.relative_to(after.about.path).as_posix() for path in after.about.path.rglob("*") if path.is_file()}
    assert files - new == {"model/weights", "mirrors/mlflow.json", "a.pt", "lock", "claim"}
    assert new <= files
    assert runs("import", archive) == (0, "0 runs imported, 1 skipped (already exist)\n", "")


def test_a_small_archive_has_the_scores_without_figures_and_pairs(
    runs: Runs, elsewhere: Callable[[], None], tmp_path: Path
) -> None:
    before = read_run(record().run_id)
    assert runs("export", str(tmp_path / "a.zip"), "--small")[0] == 0
    elsewhere()
    runs("import", str(tmp_path / "a.zip"))
    (after,) = all_runs()
    assert (after.result, after.started) == (before.result, before.started)
    assert not (after.about.path / "series").exists()
    assert not (after.about.path / "figures").exists()


def test_an_imported_run_of_a_study_counts_as_done(runs: Runs, elsewhere: Callable[[], None], tmp_path: Path) -> None:
    record(2, study="studies/a/row/column")
    record(3, study="studies/b/row/column")
    assert runs("export", str(tmp_path / "a.zip"), "--study", "studies/a")[0] == 0
    elsewhere()
    runs("import", str(tmp_path / "a.zip"))
    assert [run.about.seed for run in all_runs()] == [2]
    assert isinstance(claim(About(name="x", group="g", seed=2, identity=Identity(settings="a"))), RecordedRun)


def test_the_same_runs_give_the_same_bytes(runs: Runs, tmp_path: Path) -> None:
    for seed in range(3):
        record(seed)
    for name in ("a", "b"):
        assert runs("export", str(tmp_path / name))[0] == 0
        for path in (folder_of(run.run_id) / "log.txt" for run in all_runs()):
            path.touch()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with zipfile.ZipFile(tmp_path / "a") as file:
        assert json.loads(file.read("cse-runs.json")) == {"format": "cse runs", "version": 1}
        assert {member.date_time[0] for member in file.infolist()} == {1980}


def test_only_finished_runs_are_exported_with_what_is_below_them(runs: Runs, tmp_path: Path) -> None:
    search = recorded(None, summary="tuning", name="search")
    record(search="s", trial=0, parent=search.run_id, name="trial 0")
    recorded(end="failed", parent=search.run_id)
    (record(name="damaged").path / "result.json").write_text("{}")
    record(name="other")
    code, out, err = runs("export", str(tmp_path / "a.zip"), "--run", "search")
    assert (code, ": 2 runs, " in out, "1 run skipped" in err) == (0, True, True)
    assert ": 3 runs, " in runs("export", str(tmp_path / "a.zip"), "--force")[1]
    for arguments, message in {
        ("--run", "damaged"): "no finished run to export",
        ("--run", "nope"): "run 'nope' does not exist",
        ("--study", "nope"): "no run of a study 'nope'",
    }.items():
        code, out, err = runs("export", str(tmp_path / "b.zip"), *arguments)
        assert (code, out, message in err) == (2, "", True)
    assert not (tmp_path / "b.zip").exists()


def test_no_other_file_is_overwritten(runs: Runs, tmp_path: Path) -> None:
    record()
    (tmp_path / "thesis.tex").write_text("important")
    code, _, err = runs("export", str(tmp_path / "thesis.tex"))
    assert (code, "--force" in err) == (2, True)
    code, _, err = runs("export", str(tmp_path / "thesis.tex"), "--force")
    assert (code, "is not an archive of runs" in err) == (2, True)
    assert (tmp_path / "thesis.tex").read_text() == "important"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


# --- archives that are not as they should be --------------------------------------------------------------------------


@pytest.fixture
def archive(runs: Runs, elsewhere: Callable[[], None], tmp_path: Path) -> Path:
    """Return an archive of one run, and go to an empty state directory."""
    record()
    runs("export", str(tmp_path / "a.zip"))
    elsewhere()
    return tmp_path / "a.zip"


def change(archive: Path, ending: str, new: Callable[[str, bytes], dict[str, bytes]]) -> None:
    """Replace the member whose name ends so."""
    with zipfile.ZipFile(archive) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            for path, text in (new(name, content) if name.endswith(ending) else {name: content}).items():
                file.writestr(path, text)


def imported(runs: Runs, archive: Path, home: Path) -> str:
    code, out, err = runs("import", str(archive))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert all_runs() == []
    assert not list((home.parent / "elsewhere/runs").glob(".*"))
    return err


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06" + bytes(18), b"text", b"\x1f\x8b\x08" + bytes(30), bytes(1000)])
def test_another_file_is_not_an_archive(runs: Runs, home: Path, archive: Path, content: bytes) -> None:
    archive.write_bytes(content)
    assert f"{archive} is not an archive of runs" in imported(runs, archive, home)


@pytest.mark.parametrize(
    "path",
    [
        "../../evil", "/evil", "{run}/../evil", "{run}/model/weights", "{run}/x.pt", "{run}/figures/../../x.svg",
        r"{run}\x", "{run}/series/.npz/x", "UP/run.toml", "x",
    ],
)  # fmt: skip
def test_unexpected_members_are_refused(runs: Runs, home: Path, archive: Path, path: str) -> None:
    change(archive, "log.txt", lambda name, text: {name: text, path.format(run=name.partition("/")[0]): b"x"})
    assert "unexpected member" in imported(runs, archive, home)
    assert not list(home.parent.rglob("evil"))


def test_a_link_is_written_as_a_plain_file(runs: Runs, home: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "a") as file:
        run_id = file.namelist()[2].partition("/")[0]
        link = zipfile.ZipInfo(f"{run_id}/figures/link.svg")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")
    assert runs("import", str(archive))[0] == 0
    made = folder_of(run_id) / "figures/link.svg"
    assert (made.is_symlink(), made.read_text()) == (False, "/etc/passwd")


def test_a_run_that_is_too_large_is_refused(
    runs: Runs, home: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_MOST_BYTES", 1000)
    assert "has more than 1,000 bytes" in imported(runs, archive, home)


@pytest.mark.parametrize(
    ("ending", "old", "new", "message"),
    [
        ("result.json", b"{", b"[", ""),
        ("run.toml", b"seed = 1", b'seed = "x"', "seed"),
        ("run.toml", b"name", b"= name", ""),
        ("run.toml", b'run_id = "', b'run_id = "0', "describes run 0"),
        ("events.jsonl", b'"finished"', b'"failed"', "not finished"),
        ("events.jsonl", b"}\n", b"\n", "damaged"),
        ("cse-runs.json", b"1", b"2", "another version"),
    ],
)
def test_damaged_contents_are_named(
    runs: Runs, home: Path, archive: Path, ending: str, old: bytes, new: bytes, message: str
) -> None:
    change(archive, ending, lambda name, text: {name: text.replace(old, new, 1)})
    assert message in imported(runs, archive, home)


@pytest.mark.parametrize("missing", ["run.toml", "result.json", "events.jsonl", "cse-runs.json"])
def test_a_missing_file_is_named(runs: Runs, home: Path, archive: Path, missing: str) -> None:
    change(archive, missing, lambda *_: {})
    assert missing in imported(runs, archive, home)


def test_flipped_bits_are_found(runs: Runs, home: Path, archive: Path) -> None:
    whole = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as file:
        (where,) = (member.header_offset for member in file.infolist() if member.filename.endswith("result.json"))
    whole[where + 200] ^= 4
    archive.write_bytes(whole)
    imported(runs, archive, home)


def test_a_full_disk_leaves_nothing(runs: Runs, home: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exchange, "write_atomically", full)
    code, _, err = runs("import", str(archive))
    assert (code, "No space left" in err) == (4, True)
    assert list((home.parent / "elsewhere/runs").iterdir()) == []
