"""Facts of recipes and components: served from the cache as long as nothing changed, and correct when it did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cse_cli.core.paths import cache
from cse_cli.recipe import cached, catalog
from cse_cli.recipe.cached import Installed, installed
from cse_cli.recipe.catalog import component_facts, recipe_facts
from cse_cli.recipe.describe import full
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.recipe.requirements import requirements
from registry import LOSSES, REGISTRIES
from registry.errors import UnknownNameError

CODE = """
import sys
from cse_cli.listing.inventory import listing
from cse_cli.recipe.catalog import recipe_facts
from cse_cli.recipe.show import component_documents, recipe_document, recipe_text
found = listing()
assert len(found.recipes) > 100 and found.components["losses"]
assert recipe_facts("quickstart").settings
assert component_documents("info_nce")[0]["parameters"]
assert recipe_text("quickstart", [], [], resolved=True) and recipe_document("quickstart", [], [])["recipe"]
print([name for name in ("torch", "transformers", "datasets", "mlflow") if name in sys.modules])
"""


@pytest.fixture(autouse=True)
def unchanged_code(monkeypatch):
    """Take the code as unchanged since this process started, also while somebody edits it."""
    monkeypatch.setattr(Installed, "is_loaded", True)


@pytest.fixture
def served(monkeypatch):
    """Return facts that must come from the cache."""

    def fail(*_):
        raise AssertionError("not from the cache")

    def get(function, *arguments):
        with monkeypatch.context() as patch:
            for name in ("_load_facts", "_load_components"):
                patch.setattr(catalog, name, fail)
            return function(*arguments)

    return get


@pytest.fixture
def own(write):
    return lambda name, text: str(write(name, text))


def entries_of_cache():
    return sorted(path for path in (cache() / "catalog").rglob("*") if path.is_file())


@pytest.mark.process
def test_a_warm_cache_needs_no_torch():
    for name in all_recipes():
        recipe_facts(name)
    component_facts()
    told = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert told.stdout.strip() == "[]"


def test_facts_are_those_of_the_loaded_recipe(served):
    recipe = load("ifcl_en").recipe
    first = recipe_facts("ifcl_en")
    facts = served(recipe_facts, "ifcl_en")
    assert facts == first
    assert (facts.name, facts.path, facts.title) == ("ifcl_en", all_recipes()["ifcl_en"], recipe.title)
    assert (facts.settings, facts.language, facts.paper) == (recipe.hash(), "en", recipe.paper)
    assert facts.requirements == tuple(requirements(recipe))
    assert facts.resolved["train"]["batch_size"] == recipe.train.batch_size
    assert facts.error == ""


@pytest.mark.parametrize("changed", ["r.toml", "parent.toml"])
def test_a_changed_recipe_or_parent_is_loaded_again(changed, own, served):
    base = 'extends = "quickstart"\n[train]\nsteps = 3\n'
    own("parent.toml", base)
    path = own("r.toml", base if changed == "r.toml" else 'extends = "parent.toml"\n')
    before = recipe_facts(path)
    assert served(recipe_facts, "r.toml") == before
    own(changed, base.replace("3", "4"))
    after = recipe_facts(path)
    assert (before.resolved["train"]["steps"], after.resolved["train"]["steps"]) == (3, 4)
    assert after.settings == load(path).recipe.hash() != before.settings


def test_a_nearer_parent_of_the_same_name_is_noticed(own):
    path = own("r.toml", 'extends = "mini/simcse_en"\n')
    assert recipe_facts(path).title == load("mini/simcse_en").recipe.title
    (Path.cwd() / "recipes" / "mini").mkdir(parents=True)
    own("recipes/mini/simcse_en.toml", 'extends = "quickstart"\ntitle = "Nearer"\n')
    assert recipe_facts(path).title == "Nearer"


def test_text_that_appears_is_found(own, folder):
    path = own("r.toml", 'extends = "simcse_en"\nremove = ["data.dataset"]\n[data]\nfile = "mine.txt"\n')
    missing = recipe_facts(path).requirements[0]
    own("mine.txt", "a\n")
    assert missing.name == "mine.txt"
    assert recipe_facts(path).requirements[0].name == str(folder / "mine.txt")


def test_two_recipes_of_one_name_in_two_folders(own, served):
    paths = [own(f"{name}/mine.toml", f'extends = "quickstart"\ntitle = "{name}"\n') for name in ("one", "two")]
    assert [recipe_facts(path).title for path in paths] == ["one", "two"]
    assert [served(recipe_facts, path).title for path in paths] == ["one", "two"]


def test_other_code_is_other_facts(served, monkeypatch):
    recipe_facts("quickstart")
    component_facts()
    monkeypatch.setattr(cached, "installed", lambda: Installed("other", 0.0))
    for function, *arguments in ((recipe_facts, "quickstart"), (component_facts,)):
        with pytest.raises(AssertionError, match="not from the cache"):
            served(function, *arguments)


@pytest.fixture
def key(monkeypatch, tmp_path):
    """Return what computes the key of the code anew, with a plug-in in a folder."""
    package = tmp_path / "site" / "my_plugin"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('a plug-in is not imported for its key')\n")
    about = tmp_path / "site" / "my_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[cse.losses]\nmine = my_plugin\n")

    def compute():
        installed.cache_clear()
        return installed().key

    yield monkeypatch, tmp_path / "site", compute
    installed.cache_clear()


def test_the_key_changes_with_a_plugin_and_its_files(key):
    monkeypatch, site, compute = key
    without = compute()
    monkeypatch.syspath_prepend(str(site))
    first = compute()
    assert compute() == first != without
    file = site / "my_plugin" / "__init__.py"
    os.utime(file, ns=(0, 0))
    touched = compute()
    (site / "my_plugin-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.1\n")
    assert len({without, first, touched, compute()}) == 4


def test_the_key_changes_with_a_file_of_the_registry(key, monkeypatch, tmp_path):
    _, _, compute = key
    file = tmp_path / "registry" / "losses" / "info_nce.py"
    file.parent.mkdir(parents=True)
    file.write_text("temperature = 0.05\n")
    monkeypatch.setattr("cse_cli.recipe.cached._OWN", (tmp_path / "registry",))
    before = compute()
    file.write_text("temperature = 0.07\n")
    assert compute() != before


def test_code_that_changed_after_the_start_stores_nothing(monkeypatch):
    monkeypatch.setattr(Installed, "is_loaded", False)
    assert recipe_facts("quickstart").settings
    assert entries_of_cache() == []


def test_a_broken_plugin_stores_nothing(monkeypatch):
    monkeypatch.setitem(LOSSES.broken, "my-plugin (my_plugin)", "ImportError: no such module")
    assert component_facts().broken == {"my-plugin (my_plugin)": "ImportError: no such module"}
    recipe_facts("quickstart")
    assert entries_of_cache() == []


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"no digest", b"00000000\n{}"])
def test_a_damaged_cache_is_ignored(content):
    expected, components = recipe_facts("quickstart"), component_facts()
    for file in entries_of_cache():
        file.write_bytes(content)
    assert recipe_facts("quickstart") == expected
    assert component_facts() == components


def test_one_changed_digit_is_noticed():
    expected = recipe_facts("quickstart")
    (file,) = entries_of_cache()
    other = "0" if expected.settings[0] != "0" else "1"
    file.write_text(file.read_text().replace(expected.settings, other + expected.settings[1:]))
    assert recipe_facts("quickstart").settings == expected.settings


@pytest.mark.parametrize("in_the_way", ["cse-home", "cse-home/cache", "cse-home/cache/catalog"])
def test_a_folder_that_cannot_be_written(tmp_path, in_the_way):
    path = tmp_path / in_the_way
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a file stands here, as on a disk that nobody can write\n")
    assert recipe_facts("quickstart").settings == load("quickstart").recipe.hash()
    assert component_facts().documents["losses"]


def test_recipes_that_are_not_valid(own, served, folder, monkeypatch):
    path = own("bad.toml", 'extends = "quickstart"\ntitle = "Bad"\n[train]\nstep = 3\n')
    facts = recipe_facts(path)
    assert (facts.title, facts.settings, facts.resolved) == ("Bad", "", {})
    assert "bad.toml:4:1" in facts.error
    assert served(recipe_facts, path) == facts
    (folder / "other").mkdir()
    monkeypatch.chdir(folder / "other")
    assert str(folder / "bad.toml") in recipe_facts(path).error
    assert "not TOML" in recipe_facts(own("worse.toml", "title =\n")).error
    assert "no such file" in recipe_facts(str(folder / "nothing.toml")).error
    with pytest.raises(UnknownNameError):
        recipe_facts("no_such_recipe")


def test_components_are_those_registered(served):
    component_facts()
    facts = served(component_facts)
    assert [one["name"] for one in facts.every] == [entry.name for registry in REGISTRIES for entry in registry]
    (loss,) = [one for one in facts.documents["losses"] if one["name"] == "info_nce"]
    expected = full(LOSSES["info_nce"])
    assert {**loss, "file": ""} == {**expected, "file": ""}
    assert Path(loss["file"]).name == "info_nce.py"
