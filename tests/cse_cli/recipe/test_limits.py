"""Small files that would hang `cse check` or take all memory, and names that no file can have: one message at once."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cse_cli.data.files import find_files
from cse_cli.jobs.request import parse_seeds
from cse_cli.recipe.cells import cells
from cse_cli.recipe.errors import MOST_PROBLEMS, RecipeError, too_deep
from cse_cli.recipe.load import load
from cse_cli.recipe.study import load_study
from registry.catalogue.find import own_file
from registry.errors import CseError, MissingError
from registry.models import find
from tests.cse_cli.jobs.running import cse

CPU_SECONDS = 5.0
"""Far above what any of these takes (1 s), far below what each took (20 s to for ever)."""
BASE = 'extends = "mini/simcse_en"\n'
STUDY = '[study]\ntitle = "x"\nrecipe = "mini/simcse_en"\n'


def keys(form: str) -> str:
    return "".join(f"{form.format(number)}\n" for number in range(12_000))


def refused(path: Path) -> RecipeError:
    began = time.process_time()
    with pytest.raises(RecipeError) as told:
        load(str(path)) if path.name != "study.toml" else cells(load_study(str(path)))
    assert time.process_time() - began < CPU_SECONDS
    return told.value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BASE + keys("key{} = 1"), "unknown key 'key0'"),
        (f"{BASE}[train]\n{keys('key{} = 1')}", "unknown key 'key0'"),
        (BASE + keys("[losses.l{}]"), "unknown loss 'l0'"),
        (BASE + keys("[views.v{}]"), "no loss, queue or augmenter uses this view"),
        (BASE + "remove = [" + keys('"a{}",') + "]\n", "nothing called 'a0'"),
        (f"{BASE}[tune.x]\nchoices = [{'nan,' * 20_000}]\n", "nan is not a value"),
    ],
)
def test_of_very_many_problems_the_first_are_told(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    error = refused(tmp_path / "recipe.toml")
    assert len(error.problems) == MOST_PROBLEMS
    assert says in error.problems[0].message
    assert "perhaps more" in str(error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{BASE}{'.'.join('a' * 100_000)} = 1\n", "nested too deeply"),
        (f"{BASE}[{' . '.join('a' * 50_000)}]\n", "nested too deeply"),
        (BASE + "x = { " + ".".join(['"a"'] * 50_000) + " = 1 }\n", "nested too deeply"),
        (f"{BASE}x = {'[' * 5_000}{']' * 5_000}\n", "nested too deeply"),
        (f"{BASE}# {'a' * 300_000}\n", "larger than 262,144 bytes"),
        (f"{BASE}[train]\nsteps = 0x{'f' * 20_000}\n", "train.steps: a number that long"),
        (f'{BASE}title = "\\u001b]0;x\\u0007"\n', r"title: a text with the control character '\x1b'"),
        (f'{BASE}[encoders.online]\nmodel = "a\\u0000b"\n', r"model: a text with the control character '\x00'"),
        (f'{BASE}[encoders.online]\nmodel = "{"a" * 5_000}"\n', "a text of 5,000 characters"),
        (f'{BASE}remove = ["data"]\n[data]\nfile = "{"a" * 5_000}.txt"\n', "a text of 5,004 characters"),
        ('extends = "a\\u0000b.toml"\n', "no such file"),
        (f'extends = "{"a" * 5_000}"\n', "unknown recipe"),
        (f'extends = "{"a" * 5_000}.toml"\n', "no such file"),
        ('extends = "loop.toml"\n', "no such file"),
    ],
)
def test_one_message_says_why_a_recipe_is_none(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    (tmp_path / "recipe.toml").write_text(text)
    error = refused(tmp_path / "recipe.toml")
    assert says in str(error)
    assert len(str(error)) < 1_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('seeds = 1000000000\n[study.grid]\n"train.steps" = [1]\n', "study.seeds: should be at most 10000"),
        (
            "[study.grid]\n" + "".join(f'"k{n}" = [0,1,2,3,4,5,6,7,8,9]\n' for n in range(9)),
            "makes 1,000,000,000 cells",
        ),
        ("".join(f"[[study.rows]]\nrow = '{n}'\n" for n in range(8_000)), "makes 8,000 cells"),
        ('[study.grid]\n"train.steps" = [1]\n[runs]\nx = 1\n', "a study's file has one table, [study]"),
        ('[study.grid]\n"train.steps" = [1]\n[study.run]\nx = 1\n', "unknown key 'run' of [study]"),
        ('paper = "\\u001b[2J"\n[study.grid]\n"train.steps" = [1]\n', "control character"),
    ],
)
def test_one_message_says_why_a_study_is_none(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "study.toml").write_text(STUDY + text)
    assert says in str(refused(tmp_path / "study.toml"))


def test_a_long_line_of_parents_is_refused(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"c{number}.toml").write_text(f'extends = "c{number + 1}.toml"\n')
    assert "32 times: that is too many" in str(refused(tmp_path / "c0.toml"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_devices_and_circles_are_no_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    for name in ("pipe", "zero", "loop"):
        code, out, _ = cse("check", str(tmp_path / f"{name}.toml"), capsys=capsys)
        assert (code, out.count("cannot be read")) == (2, 1)


def test_what_looks_deep_and_is_not_is_read() -> None:
    assert not too_deep("".join(f"[a{n}.b.c]\nd.e = 1.5 # x.y.z. {'.' * 99}\n" for n in range(99)))
    assert too_deep('x = "' + "a." * 99 + 'a"')  # in a text, too: it is only counted


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
    monkeypatch.setattr("cse_cli.data.files.MOST_ENTRIES", 50)
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    for number in range(60):
        (folder / f"{number:02}.txt").write_text("a b\n")
    with pytest.raises(CseError, match="more than 50 files and folders would be looked through"):
        find_files([name])
    assert find_files(["deep/er/07.txt"]) == (folder / "07.txt",)
    with pytest.raises(MissingError, match="no such file"):
        find_files(["d*/no.txt"])  # what lies deeper is not looked at


def test_seeds_beyond_counting_are_refused() -> None:
    with pytest.raises(CseError, match="too many"):
        parse_seeds("4000000000")
    assert parse_seeds("4000000000,1") == [4_000_000_000, 1]
