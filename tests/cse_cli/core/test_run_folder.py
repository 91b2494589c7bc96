"""The folder that lets a run be taken up again: whole, found by a short id, and strict about changed settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.core.run_folder import RunFolder, differences, find
from cse_cli.recipe.load import load
from cse_cli.training.run import params
from registry.errors import CseError, UnknownNameError

RESOLVED = load("ifcl_en").recipe.resolved()


def folder(run_id: str = "abc123") -> RunFolder:
    made = RunFolder(run_id, "ifcl_en", Path("/there/ifcl_en.toml"), RESOLVED, base_sha256="ab" * 32)
    made.create()
    return made


def test_what_is_written_is_found_again():
    made = folder()
    assert find("abc123") == made
    assert find("ab") == made
    assert made.seed == RESOLVED["train"]["seed"]
    assert load(str(made.path / "resolved.toml")).recipe.resolved() == RESOLVED
    assert sorted(file.name for file in made.path.iterdir()) == ["resolved.toml", "run.json"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("abc124", "no run with an id starting with 'abc124' in"),
        ("abc124", "Did you mean 'abc123'?"),
        ("a", "2 runs with an id starting with 'a'"),
        ("", "2 runs with an id starting with ''"),
    ],
)
def test_no_run_or_several(asked, says):
    folder("abc123")
    folder("axx")
    with pytest.raises(UnknownNameError) as caught:
        find(asked)
    assert says in str(caught.value)


def test_no_run_at_all():
    with pytest.raises(UnknownNameError, match="no run with an id starting with 'x'"):
        find("x")


def test_closing_deletes_checkpoints_and_forbids_going_on():
    made = folder()
    made.demand_unfinished()
    for name in ("checkpoint.pt", "best-3.pt", "log.txt", "status.json", "stop"):
        (made.path / name).touch()
    made.close()
    assert sorted(file.name for file in made.path.iterdir()) == ["finished", "log.txt", "resolved.toml", "run.json"]
    with pytest.raises(CseError, match="run abc123 is finished"):
        made.demand_unfinished()


def test_the_same_settings_may_go_on():
    folder().demand_same(load("ifcl_en").recipe.resolved())


def test_prose_paper_and_tuning_may_change():
    changed = load("ifcl_en", ["title=x", "description=y"], ["paper", "tune"]).recipe.resolved()
    folder().demand_same(changed)


def test_every_changed_key_is_named_with_both_values():
    changed = load(
        "ifcl_en", ["train.learning_rate=0.5", "queue.forgetting_rate=0.5", "evaluate.untrained=true"], ["losses.twins"]
    ).recipe.resolved()
    with pytest.raises(CseError) as caught:
        folder().demand_same(changed)
    lines = [line.strip() for line in caught.value.message.split("\n")[1:]]
    assert [line.split(":")[0] for line in lines] == [
        "train.learning_rate", "evaluate.untrained", "queue.forgetting_rate", "losses.twins",
    ]  # fmt: skip
    assert lines[0] == "train.learning_rate: 1e-05 → 0.5"
    assert lines[1] == "evaluate.untrained: False → True"
    assert lines[3].endswith("→ None")


def test_differences_of_nested_tables():
    before = {"a": 1, "b": {"c": [1, 2], "d": {}}, "gone": 3}
    after = {"a": 1, "b": {"c": [2, 1], "d": {"e": 5}}, "new": 4}
    assert list(differences(before, after)) == [
        "b.c: [1, 2] → [2, 1]", "b.d.e: None → 5", "gone: 3 → None", "new: None → 4",
    ]  # fmt: skip
    assert list(differences(before, before)) == []


def test_parameters_are_leaves_as_text():
    found = params({"title": "T", "description": "long", "train": {"steps": 3}, "x": {"y": ["a"], "z": True}})
    assert found == {"title": "T", "train.steps": "3", "x.y": '["a"]', "x.z": "true"}


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"run_id": 3}', "\0"])
def test_a_damaged_run_json_is_one_message(home: Path, content: str) -> None:
    file = home / "runs" / ("ab" * 16) / "run.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    with pytest.raises(CseError, match=r"run\.json is damaged, or of another version") as told:
        find("ab")
    assert told.value.exit_code == 2


def test_a_changed_digit_of_a_run_json_is_found() -> None:
    file = folder().path / "run.json"
    file.write_text(file.read_text().replace('"batch_size": 64', '"batch_size": 65'))
    with pytest.raises(CseError, match="its checksum is wrong"):
        find("abc123")
