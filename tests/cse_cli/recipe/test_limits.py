"""Files that are too large or odd for a recipe, and names that no file can have."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from cse_cli.data.files import find_files
from cse_cli.jobs.request import parse_seeds
from cse_cli.recipe.cells import cells
from cse_cli.recipe.load import load
from cse_cli.recipe.problems import MOST_SHOWN, RecipeError
from cse_cli.recipe.study import load_study
from registry.errors import CseError, MissingError
from registry.resources.catalog import own_file
from registry.resources.models import find
from tests.support.command import cse
from tests.support.errors import refuses

BASE = 'extends = "mini/simcse_en"\n'
STUDY = '[study]\ntitle = "x"\nrecipe = "mini/simcse_en"\n'


def load_error(path: Path) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        load(str(path)) if path.name != "study.toml" else cells(load_study(str(path)))
    return caught.value


@pytest.mark.slow
def test_only_the_first_of_many_problems_are_shown(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(BASE + "".join(f"key{number} = 1\n" for number in range(1_000)))
    error = load_error(tmp_path / "recipe.toml")
    assert len(error.problems) == 1_000
    assert str(error).count("\n") == MOST_SHOWN + 1


@pytest.mark.parametrize(
    ("text", "code", "value"),
    [
        (f"{BASE}x = {'[' * 5_000}{']' * 5_000}\n", "recipe.not_toml", "1:1"),
        (f"{BASE}# {'a' * 300_000}\n", "recipe.unreadable", "262,144 bytes"),
        (f"{BASE}[tune.x]\nchoices = [1, 0x{'f' * 20}]\n", "recipe.invalid_value", "tune.x.choices.1: "),
        (f"{BASE}[tune.x]\nchoices = [nan]\n", "recipe.invalid_value", "tune.x.choices.0: "),
        (f'{BASE}title = "\\u001b]0;x\\u0007"\n', "recipe.invalid_value", r"'\x1b'"),
        (f'{BASE}[encoders.online]\nmodel = "a\\u0000b"\n', "recipe.invalid_value", r"'\x00'"),
        ('extends = "a\\u0000b.toml"\n', "recipe.missing_file", "1:11"),
        (f'extends = "{"a" * 5_000}"\n', "recipe.unknown_recipe", "1:11"),
        (f'extends = "{"a" * 5_000}.toml"\n', "recipe.missing_file", "1:11"),
        ('extends = "loop.toml"\n', "recipe.missing_file", "1:11"),
    ],
)
def test_values_that_no_recipe_has(tmp_path: Path, text: str, code: str, value: str) -> None:
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    (tmp_path / "recipe.toml").write_text(text)
    with refuses(code, value):
        load(str(tmp_path / "recipe.toml"))


def test_a_long_name_of_a_model_or_file_is_valid(tmp_path: Path) -> None:
    long = "a" * 5_000
    (tmp_path / "recipe.toml").write_text(f'{BASE}remove = ["data"]\n[data]\nfile = "{long}.txt"\n')
    assert load(str(tmp_path / "recipe.toml"), [f"encoders.online.model={long}"]).recipe.data.file == f"{long}.txt"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code", "value"),
    [
        ('seeds = 1000000000\n[study.grid]\n"train.steps" = [1]\n', "recipe.invalid_value", "study.seeds: "),
        (
            "[study.grid]\n" + "".join(f'"k{n}" = [0,1,2,3,4,5,6,7,8,9]\n' for n in range(9)),
            "study.too_many_cells", "1,000,000,000",
        ),
        ("".join(f"[[study.rows]]\nrow = '{n}'\n" for n in range(8_000)), "study.too_many_cells", "8,000"),
        ('[study.grid]\n"train.steps" = [1]\n[runs]\nx = 1\n', "study.unknown_key", "[study]"),
        ('[study.grid]\n"train.steps" = [1]\n[study.run]\nx = 1\n', "recipe.unknown_key", "'run' of [study]"),
        ('paper = "\\u001b[2J"\n[study.grid]\n"train.steps" = [1]\n', "recipe.invalid_value", r"'\x1b'"),
    ],
)  # fmt: skip
def test_values_that_no_study_has(tmp_path: Path, text: str, code: str, value: str) -> None:
    (tmp_path / "study.toml").write_text(STUDY + text)
    with refuses(code, value):
        load_study(str(tmp_path / "study.toml"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_devices_and_circular_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    for name in ("pipe", "zero", "loop"):
        code, out, _ = cse("check", str(tmp_path / f"{name}.toml"), capsys=capsys)
        assert (code, out.count("cannot be read")) == (2, 1)


@pytest.mark.parametrize("name", ["a" * 300, "/" + "a" * 300, "~nobody-of-this-name/x", "x/**y*.txt", "loop"])
def test_a_name_that_no_file_can_have_is_a_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    assert own_file(name) is None
    with pytest.raises(MissingError):
        find_files([name])
    with suppress(MissingError):  # of what can only be a path
        assert find(name) is None


@pytest.mark.parametrize("name", ["deep", "deep/**/*.txt", "**/*.txt", "deep/*/*.txt"])
def test_a_whole_disk_is_not_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cse_cli.core.paths.MOST_ENTRIES", 50)
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    for number in range(60):
        (folder / f"{number:02}.txt").write_text("a b\n")
    with pytest.raises(CseError, match="more than 50 files and directories"):
        find_files([name])
    assert find_files(["deep/er/07.txt"]) == (folder / "07.txt",)
    with pytest.raises(MissingError, match="does not exist"):
        find_files(["d*/no.txt"])  # what lies deeper is not looked at


def test_seeds_beyond_counting_are_refused() -> None:
    with refuses("jobs.invalid_seeds", "4000000000"):
        parse_seeds("4000000000")
    assert parse_seeds("4000000000,1") == [4_000_000_000, 1]
