"""What a run is, written at once, and read back strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.core.identity import Identity
from cse_cli.recipe.load import load
from cse_cli.runs import record as records
from cse_cli.runs.record import About, read_about, read_recipe
from tests.support.errors import refuses
from tests.support.records import recorded


def about(**changes: object) -> About:
    plain = {
        "name": "[b]one[/b] ä", "group": "mini/simcse_en", "seed": 3, "changes": ("train.steps=10", "no queue"),
        "tags": {"for": "paper", "with space": "a=b"}, "note": 'lines\nand "quotes"',
        "commits": {"model a/b": "c" * 40},
        "identity": Identity(settings="s", text="t", weights={"encoders.bert": "w"}, code={"losses.info_nce": "c"}),
    }  # fmt: skip
    return About(**{**plain, **changes})  # type: ignore[arg-type]


def test_what_is_written_is_read_back_equal(home: Path) -> None:
    made, resolved = about(), load("mini/simcse_en").recipe.resolved()
    made.write(resolved)
    assert read_about(made.run_id) == made
    assert read_recipe(made.run_id) == resolved
    assert load(str(made.path / "recipe.toml")).recipe.resolved() == resolved
    assert sorted(path.name for path in made.path.iterdir()) == ["recipe.toml", "run.toml"]
    assert [path.name for path in (home / "runs").iterdir()] == [made.run_id]


def test_the_checksum_of_an_older_version_is_a_comment() -> None:
    made = about()
    made.write()
    with (made.path / "run.toml").open("a") as file:
        file.write("# crc32 89abcdef\n")
    assert read_about(made.run_id) == made


def test_nothing_is_left_if_it_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records, "write_atomically", full)
    with pytest.raises(OSError, match="No space left"):
        about().write()
    assert list((home / "runs").iterdir()) == []


@pytest.mark.parametrize("content", ["", "x", "name = 3", "\0", '[a]\nb = "c"'])
def test_a_damaged_run_toml_is_one_message(content: str) -> None:
    made = about()
    made.write()
    (made.path / "run.toml").write_text(content)
    with refuses("runs.damaged_record", "run.toml", "run the recipe again"):
        read_about(made.run_id)


def test_a_copied_directory_is_not_the_same_run() -> None:
    made, copy = about(), about()
    made.write()
    copy.write()
    (copy.path / "run.toml").write_bytes((made.path / "run.toml").read_bytes())
    with refuses("runs.damaged_record", f"describes run {made.run_id}"):
        read_about(copy.run_id)


@pytest.mark.parametrize(("end", "left"), [("finished", []), ("pruned", []), ("failed", ["checkpoint.pt"])])
def test_the_end_deletes_what_nothing_resumes(end: str, left: list[str]) -> None:
    record = recorded(end=None)
    for name in ("checkpoint.pt", "stop"):
        (record.path / name).touch()
    record.end(end)  # type: ignore[arg-type]
    assert [path.name for path in record.path.iterdir() if path.name in ("checkpoint.pt", "stop")] == left
