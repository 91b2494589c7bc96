"""Which recipe is meant where none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.tuning.options import choose_recipe
from registry.errors import CseError
from tests.records import recorded


def ran(name: str, source: Path) -> str:
    return recorded(recipe=name, source=str(source)).run_id


def configure(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_the_shipped_one_on_a_fresh_machine(home):
    recipe, why = choose_recipe()
    assert recipe == "quickstart"
    assert str(home) in why
    assert not home.exists()


def test_the_one_that_is_named_needs_no_reason():
    assert choose_recipe("mini/simcse_en") == ("mini/simcse_en", "")


def test_the_one_run_last(home, tmp_path):
    own = configure(tmp_path / "own" / "mine.toml", "")
    shipped = Path("recipes/mini/simcse_en.toml").absolute()
    ran("mine", own)
    ran("mini/simcse_en", shipped)
    ran("gone", tmp_path / "gone.toml")
    recorded(recipe="", summary="tuning", search="search")
    (home / "runs" / "half").mkdir()
    assert choose_recipe() == ("mini/simcse_en", f"it is the one run last from {home}")
    ran("mine", own)
    assert choose_recipe()[0] == str(own)  # no bare name means it


def test_the_configured_one_wins_over_the_one_run_last(home, tmp_path, monkeypatch):
    ran("quickstart", Path("recipes/quickstart.toml").absolute())
    file = configure(home / "config.toml", 'default_recipe = "mini/ifcl_en"\n')
    assert choose_recipe() == ("mini/ifcl_en", f"it is the default_recipe in {file}")
    elsewhere = configure(tmp_path / "else.toml", 'default_recipe = "own.toml"\n')
    monkeypatch.setenv("CSE_CONFIG", str(elsewhere))
    assert choose_recipe()[0] == str(tmp_path / "own.toml")  # counts from the file that says so


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('defalt_recipe = "quickstart"', "unknown setting 'defalt_recipe'. Did you mean 'default_recipe'?"),
        ("default_recipe = 3", "should be the name or the path of a recipe"),
        ('default_recipe = "quickstrat"', "Did you mean 'quickstart'"),
        ("default_recipe =", "cannot be read"),
    ],
)
def test_a_wrong_configuration_names_its_file(text, message, home):
    file = configure(home / "config.toml", text)
    with pytest.raises(CseError) as caught:
        choose_recipe()
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_configuration_that_is_named_must_be_there(tmp_path, monkeypatch):
    monkeypatch.setenv("CSE_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(CseError, match="is not there"):
        choose_recipe()
