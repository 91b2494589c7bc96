"""The shared file: its verdict follows from its scores, it has no private paths, and a bad file is one error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cse_cli.core.checksums import with_checksum, without_checksum
from cse_cli.reproduce.document import make_reproduction, read_reproduction, without_directories
from cse_cli.reproduce.report import markdown, next_command
from cse_cli.reproduce.target import find_target
from cse_cli.reproduce.verdict import judge
from registry.papers import badge_of
from tests.cse_cli.reproduce.conftest import ifcl, quickstart
from tests.support.errors import refuses
from tests.support.records import result


def test_a_written_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    for document in (quickstart([59.0, 60.0, 58.5]), ifcl([77.0])):
        file.write_text(document.to_json())
        assert read_reproduction(file) == document


def test_a_changed_recipe_has_no_checks() -> None:
    document = ifcl([77.0])
    assert document.checks == badge_of("ifcl_en").line == "equations"
    assert "Checks of the recipe (explained in docs/fidelity.md): equations\n" in markdown(document)
    changed = quickstart([53.0], ["train.learning_rate=1e-5"])
    assert changed.checks == ""
    assert "Checks of the recipe" not in markdown(changed)


def test_the_verdict_follows_from_the_scores() -> None:
    document = quickstart([59.0, 60.0, 58.5])
    reference = document.reference
    assert document.verdict == judge(
        [59.0, 60.0, 58.5], reference.claim, reference.others, tolerance=reference.tolerance
    )
    assert document.verdict.outcome == "reproduced"
    assert quickstart([53.0, 53.5, 52.0]).verdict.outcome == "lower"
    assert quickstart([65.0, 66.5, 65.0]).verdict.outcome == "higher"
    assert ifcl([77.0]).verdict.outcome == "undecided"


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *outer, last = path.split(".")
    table: Any = document
    for key in outer:
        table = table[int(key)] if isinstance(table, list) else table[key]
    table[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("verdict.outcome", "higher", "'higher'"),
        ("seeds.0.scores", {"dev": 68.0, "test": 90.0}, "does not follow"),
        ("verdict.mean", 59.3, "59.30"),
        ("seeds.1.seed", 0, "a seed appears twice"),
        ("seeds.0.scores", {"dev": 68.0}, "seed 0"),
        ("seeds.0.scores", {"test": float("nan")}, "finite"),
        ("seeds.0.scores", {"test": "many"}, "seeds.0.scores.test"),
        ("seeds", [], "seeds"),
        ("reference.claim.value", None, "reference.claim.value"),
        ("reference.others.std", 0.0, "reference.others.std"),
        ("schema_version", 2, "schema_version"),
        ("format", "cse runs", "format"),
    ],
)
def test_a_file_that_contradicts_itself(path: str, value: Any, named: str, tmp_path: Path) -> None:
    document = without_checksum(json.loads(quickstart([59.0, 60.0, 58.5]).to_json()))
    file = tmp_path / "result.json"
    file.write_text(json.dumps(with_checksum(changed(document, path, value))))
    with refuses("reproduce.bad_file", str(file), named, "--output"):
        read_reproduction(file)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"format": "cse reproduction"}'])
def test_a_file_that_is_no_reproduction(text: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    with refuses("reproduce.bad_file", str(file)):
        read_reproduction(file)


def test_a_changed_digit_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    text = quickstart([59.0, 60.0, 58.5]).to_json()
    file.write_text(text.replace('"test": 60.0', '"test": 60.5'))
    with refuses("reproduce.bad_file", "checksum"):
        read_reproduction(file)
    file.write_bytes(b"\xff\xfe")
    for path in (file, tmp_path / "gone.json", tmp_path):
        with refuses("reproduce.bad_file", str(path)):
            read_reproduction(path)


def test_no_private_path_is_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "secret" / "quickstart.toml"
    file.parent.mkdir()
    file.write_text('extends = "simcse_en"\ntitle = "Mine"\n')
    overrides = [f"data.file={tmp_path}/secret/own.txt"]
    target = find_target(str(file), overrides, ["data.dataset"])
    scores = {column.evaluators[0]: {"spearman": 75.0} for column in target.columns.values()}
    one = result(recipe="quickstart", source=str(file), scores=scores, run_id="ab" * 16)
    document = make_reproduction(target, [one], ["--set", *overrides, "--seeds", "1"])
    text = document.to_json()
    assert str(tmp_path) not in text
    assert "secret" not in text
    assert document.command == "cse reproduce quickstart.toml --set data.file=own.txt --seeds 1"
    assert any("own.txt" in change for change in document.changes)


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("data.file=/home/ada/x.txt", "data.file=x.txt"),
        ("--set 'data.file=~/texts/x.txt'", "--set 'data.file=x.txt'"),
        ('data.file=["/a/b.txt", "/a/c.txt"]', 'data.file=["b.txt", "c.txt"]'),
        (r"data.file=C:\me\x.txt", "data.file=x.txt"),
        ("cse reproduce 'ifcl/1/IFCL-BERT base'", "cse reproduce 'ifcl/1/IFCL-BERT base'"),
        ("mini/simcse_en losses.a.b=1", "mini/simcse_en losses.a.b=1"),
    ],
)
def test_directories_of_absolute_paths_are_removed(text: str, public: str) -> None:
    assert without_directories(text) == public


def test_the_command_that_adds_the_missing_seeds() -> None:
    document = ifcl([77.0, 77.4])
    assert document.verdict.more_seeds > 0
    total = 2 + document.verdict.more_seeds
    assert next_command(document) == f"cse reproduce 'ifcl/1/IFCL-BERT base' --seeds {total}"
    assert next_command(quickstart([59.0, 60.0, 58.5])) is None


def test_missing_seeds_of_a_list_are_new_ones() -> None:
    document = ifcl([77.0, 77.4])
    seeds = tuple(seed.model_copy(update={"seed": seed.seed * 2 + 1}) for seed in document.seeds)
    listed = document.model_copy(update={"seeds": seeds, "command": "cse reproduce ifcl_en --seeds 1,3"})
    more = document.verdict.more_seeds
    expected = [1, 3, *[seed for seed in range(100) if seed not in (1, 3)][:more]]
    assert next_command(listed) == f"cse reproduce ifcl_en --seeds {','.join(map(str, expected))}"
