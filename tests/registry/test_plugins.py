"""Components from other distributions, found by entry points; faked on sys.path, nothing is installed."""

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

import registry
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from registry import LOSSES
from registry.machinery import plugins
from registry.machinery.core import Registry
from registry.resources import catalog
from registry.testing import check
from tests.support.errors import refuses

EXAMPLE = Path(__file__).parent.parent / "plugin_example"

COMPONENT = '''
from torch import Tensor

from registry import LOSSES
from registry.types import Loss, Sentences


@LOSSES.register("{name}")
class Brought(Loss):
    """Come from {module}."""

    def forward(self, anchor: Sentences) -> Tensor:
        return anchor.sum()
'''


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on sys.path, as a site-packages; what is imported from it is forgotten afterwards."""
    assert len(LOSSES) > 0  # scanned before there are plug-ins here
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", "")).startswith((str(tmp_path), str(EXAMPLE))):
            del sys.modules[module]


@pytest.fixture
def scanned(monkeypatch):
    """Scan for plug-ins as a fresh process would: our own losses, then every entry point."""

    def scan():
        importlib.invalidate_caches()
        fresh = Registry("losses", "Loss", _entries=dict(LOSSES._entries))
        assert len(LOSSES) > 0
        fresh._entries.update(LOSSES._entries)
        monkeypatch.setattr(registry, "LOSSES", fresh)
        fresh.scan()
        return fresh

    return scan


def install(site, distribution, points):
    """Write the metadata an installer would write."""
    write_points(site, distribution, {"cse.losses": points})


def write_points(site, distribution, groups):
    folder = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *map(" = ".join, points.items()))]
    (folder / "entry_points.txt").write_text("\n".join(lines))


def bring(site, distribution, module, name):
    (site / f"{module}.py").write_text(COMPONENT.format(name=name, module=module))
    install(site, distribution, {name: module})


@pytest.mark.slow
def test_the_example_package(site, scanned, monkeypatch):
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(EXAMPLE)
    install(site, project["name"], project["entry-points"]["cse.losses"])
    losses = scanned()
    assert losses.broken == {}
    entry = losses["uniformity"]
    assert entry.distribution == "cse-uniformity"
    assert Path(entry.file) == EXAMPLE / "cse_uniformity" / "uniformity.py"
    check(entry)
    assert "uniformity" not in LOSSES


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import a_module_nobody_has", "ModuleNotFoundError: No module named 'a_module_nobody_has'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (COMPONENT.format(name="odd", module="odd").replace(": Sentences", ""), "parameter 'anchor' has no annotation"),
    ],
)
def test_a_broken_plugin_is_reported_and_harms_nobody(site, scanned, source, why):
    (site / "odd_plugin.py").write_text(source)
    install(site, "odd-one", {"odd": "odd_plugin"})
    bring(site, "good-one", "good_plugin", "good")
    losses = scanned()
    assert list(losses.broken) == ["odd-one (odd_plugin)"]
    assert why in losses.broken["odd-one (odd_plugin)"]
    assert {"good", "info_nce"} <= set(losses.names())
    with refuses("component.unknown", "odd-one (odd_plugin)", why):
        losses["odd"]


def test_a_plugin_may_not_take_one_of_our_names(site, scanned):
    bring(site, "greedy-one", "greedy_plugin", "info_nce")
    losses = scanned()
    said = losses.broken["greedy-one (greedy_plugin)"]
    assert "registry.losses.info_nce.InfoNCE (from cse)" in said
    assert "greedy_plugin.Brought (from greedy-one)" in said
    assert losses["info_nce"].cls is LOSSES["info_nce"].cls


def test_two_plugins_with_one_name_are_refused_when_it_is_used(site, scanned):
    bring(site, "first-one", "first_plugin", "shared")
    bring(site, "second-one", "second_plugin", "shared")
    losses = scanned()
    assert len(losses.broken) == 1
    owners = ("first_plugin.Brought (from first-one)", "second_plugin.Brought (from second-one)")
    with refuses("component.same_name", *owners):
        losses["shared"]
    assert losses["info_nce"].name == "info_nce"


def test_a_plugin_may_look_up_components_and_be_defined_beside_a_script(site, scanned):
    (site / "curious_plugin.py").write_text(
        COMPONENT.format(name="curious", module="curious") + '\nassert "info_nce" in LOSSES\n'
    )
    install(site, "curious-one", {"curious": "curious_plugin"})
    losses = scanned()
    assert losses.broken == {}
    assert losses["curious"].distribution == "curious-one"
    fresh = Registry("losses", "Loss", _scanned=True)
    space = {"__name__": "my_script"}
    exec(COMPONENT.format(name="x", module="y").replace("@LOSSES", "@_L").replace("from registry import LOSSES", ""), space | {"_L": fresh})  # fmt: skip  # noqa: E501
    assert fresh["x"].distribution == "my_script"


@pytest.fixture
def brought(site, monkeypatch):
    """Install a package with a directory of TOML files for one kind; return the directory."""

    def bring(kind):
        folder = site / "brought_files" / kind
        folder.mkdir(parents=True)
        (site / "brought_files" / "__init__.py").write_text("raise AssertionError('imported')")
        write_points(
            site, "brought-files", {f"cse.{kind}": {"mine": f"brought_files.{kind}", "gone": "no_such.module"}}
        )
        importlib.invalidate_caches()
        plugins.folders.cache_clear()
        return folder

    yield bring
    plugins.folders.cache_clear()


def test_a_package_brings_a_data_set(brought):
    folder = brought("datasets")
    text = (catalog.FOLDER / "tatoeba_open.toml").read_text()
    (folder / "mine.toml").write_text(re.sub(r'shipped = "[^"]*"', 'shipped = "mine.tsv"', text))
    (folder / "mine.tsv").write_text("text\nA dog.\n")
    assert "mine" in catalog.names()
    origin, source = catalog.find("mine", "train")
    assert (origin, source.where) == ("package", str(folder / "mine.tsv"))
    (folder / "stsb_open.toml").write_text(text)
    catalog.entry.cache_clear()
    with refuses("data.same_name", "'stsb_open'", folder / "stsb_open.toml"):
        catalog.entry("stsb_open")
    catalog.entry.cache_clear()


def test_a_package_brings_recipes_but_replaces_none(brought, monkeypatch, tmp_path):
    folder = brought("recipes")
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "simcse_en"):
        (folder / f"{name}.toml").write_text("extends = 'mini/simcse_en'\ntitle = 'Mine'\n")
    assert load("mine").recipe.title == "Mine"
    assert all_recipes()["mine"] == folder / "mine.toml"
    assert load("simcse_en").recipe.title != "Mine"
