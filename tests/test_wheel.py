"""What is installed is whole: the wheel alone, in an empty folder far from the checkout, trains and scores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from cse_cli._version import __version__

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    call([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    call([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), str(wheel)], folder)
    return folder


def call(command: list[str], folder: Path, **variables: str) -> str:
    """Return what a command writes to stdout; its stderr is the message where it fails."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CSE_")} | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def cse(*arguments: str, installed: Path, folder: Path) -> str:
    # -P keeps the working directory off sys.path; PYTHONPATH comes before the editable checkout.
    command = [sys.executable, "-P", "-m", "cse_cli", *arguments]
    return call(command, folder, PYTHONPATH=str(installed), CSE_HOME=str(folder.parent / "home"), HF_HUB_OFFLINE="1")


def files_of(root: Path, *patterns: str) -> set[str]:
    found = {path.relative_to(root).as_posix() for pattern in patterns for path in root.glob(pattern)}
    return {name for name in found if "__pycache__" not in name}


def test_everything_is_in_the_wheel(wheel):
    names = set(ZipFile(wheel).namelist())
    expected = files_of(ROOT, "cse_cli/**/*.py", "registry/**/*.py", "registry/**/*.toml")
    expected |= files_of(ROOT, "registry/pretrained/*/*", "registry/lexicons/*", "registry/texts/*")
    expected |= {f"cse_cli/_{name}" for name in files_of(ROOT, "recipes/**/*.toml")}
    assert len(expected) > 100
    assert expected - names == set()
    for name in (
        "cse_cli/_recipes/quickstart.toml", "cse_cli/_recipes/mini/ifcl_en.toml", "registry/datasets/stsb_open.toml",
        "registry/pretrained/mini_en/model.safetensors", "registry/pretrained/mini_de/vocab.txt", "registry/py.typed",
        "cse_cli/py.typed", "registry/lexicons/antonyms_en.tsv", "registry/lexicons/verbs_en.tsv",
        "registry/lexicons/LICENSE.wordnet", "cse_cli/_constraints.txt",
        "registry/papers/field_leaderboard.tsv", "registry/papers/references.bib", "registry/texts/tatoeba_open.tsv.gz",
        "registry/texts/tatoeba_en_de.tsv.gz", "registry/texts/wiki1m_prefix.txt.gz", "registry/texts/README.md",
    ):  # fmt: skip
        assert name in names
    assert any(name.startswith("registry/papers/") and name.endswith(".toml") for name in names)


def test_nothing_else_is_in_the_wheel(wheel):
    tops = {name.split("/")[0] for name in ZipFile(wheel).namelist()}
    assert tops == {"cse_cli", "registry", f"cse_registry-{__version__}.dist-info"}
    assert wheel.stat().st_size < 15e6


def test_the_command_and_the_license_are_declared(wheel):
    with ZipFile(wheel) as archive:
        about = f"cse_registry-{__version__}.dist-info"
        assert "cse = cse_cli.__main__:main" in archive.read(f"{about}/entry_points.txt").decode()
        assert f"{about}/licenses/LICENSE" in archive.namelist()


def test_what_is_installed_hides_the_checkout(installed):
    program = "import cse_cli, registry; print(cse_cli.__file__, registry.__file__)"
    for file in call([sys.executable, "-P", "-c", program], installed.parent, PYTHONPATH=str(installed)).split():
        assert Path(file).is_relative_to(installed)


@pytest.mark.exhaustive
def test_every_recipe_checks_in_an_empty_folder(installed, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    out = cse("check", installed=installed, folder=folder)
    studies = len(files_of(ROOT / "recipes" / "studies", "**/*.toml"))
    recipes = len(files_of(ROOT / "recipes", "**/*.toml")) - studies
    assert out == f"{recipes} recipes and {studies} studies checked: all valid\n"
    assert list(folder.iterdir()) == []


def test_the_references_of_a_recipe(installed, tmp_path):
    assert "@misc{xiao2023identical," in cse("cite", "quickstart", installed=installed, folder=tmp_path)


def test_quickstart_runs_in_an_empty_folder(installed, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    few = ("train.steps=2", "train.evaluate_every=0", "data.limit=200", "encoders.white.limit=200")
    options = [part for setting in few for part in ("--set", setting)]
    arguments = ["run", "quickstart", *options, "--unset", "evaluators.test", "--json"]
    out = cse(*arguments, installed=installed, folder=folder)

    (result,) = json.loads(out)["results"]
    assert (result["recipe"], result["steps"]) == ("quickstart", 2)
    assert set(result["scores"]) == {"dev"}
    assert list(folder.iterdir()) == []
    assert json.loads(cse("runs", "show", result["run_id"], "--json", installed=installed, folder=folder))
