"""Version of the code of a component: a number in this package, the files that count in a plug-in."""

import importlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry import LOSSES, REGISTRIES
from registry.machinery.code import code_version


class Plug:
    """A package of two losses in a temporary folder, whose `__init__` passes both on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("__init__.py", "from .one import One\nfrom .two import Two\n")
        self.write("one.py", "from plug.helpers.maths import scaled\n\n\nclass One:\n    rate = 2\n")
        self.write("two.py", "from .helpers import maths\n\n\nclass Two:\n    rate = 2\n")
        self.write("helpers/__init__.py", "")
        self.write("helpers/maths.py", "def scaled(x):\n    return 2 * x\n")
        self.write("unused.py", "x = 1\n")

    def write(self, name: str, text: str) -> None:
        path = self.folder / "plug" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def versions(self) -> tuple[str, str]:
        plug = importlib.import_module("plug")
        return code_version(plug.One), code_version(plug.Two)


@pytest.fixture
def plug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plug]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Plug(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("plug", "lonely", "neighbor")]:
        del sys.modules[name]


def test_components_of_this_package_have_a_number_and_classes_without_a_file_count():
    versions = {code_version(entry.cls) for each in REGISTRIES for entry in each if entry.distribution == "cse"}
    assert versions <= {str(number) for number in range(1, 100)}
    assert code_version(LOSSES["info_nce"].cls) == str(LOSSES["info_nce"].cls.version)
    scope: dict[str, type] = {"__name__": "typed_in"}  # type: ignore[dict-item]
    exec(textwrap.dedent("class A: pass\nclass B: pass"), scope)
    assert code_version(scope["A"]) != code_version(scope["B"])


def test_a_file_counts_for_its_component_only(plug):
    one, two = plug.versions()
    plug.write("one.py", "from plug.helpers.maths import scaled\n\n\nclass One:\n    rate = 3\n")
    changed = plug.versions()
    assert changed[0] != one
    assert changed[1] == two
    before = plug.versions()
    plug.write("three.py", "class Three:\n    pass\n")
    plug.write("__init__.py", "from .one import One\nfrom .two import Two\nfrom .three import Three\n")
    plug.write("unused.py", "x = 2\n")
    assert plug.versions() == before


IMPORTS = [
    "import plug.helpers.maths", "from plug.helpers import maths", "from plug.helpers.maths import scaled",
    "from .helpers.maths import scaled", "from .helpers import maths as other",
    "def f():\n    import plug.helpers.maths",
]  # fmt: skip


@pytest.mark.parametrize("line", IMPORTS)
def test_an_imported_file_counts_however_it_is_imported(plug, line):
    plug.write("one.py", f"{line}\n\n\nclass One:\n    pass\n")
    before = plug.versions()
    plug.write("helpers/maths.py", "def scaled(x):\n    return 3 * x\n")
    assert plug.versions()[0] != before[0]


def test_imports_are_followed_also_beside_a_single_module(plug, tmp_path):
    plug.write("helpers/maths.py", "from .other import factor\n\n\ndef scaled(x):\n    return factor * x\n")
    plug.write("helpers/other.py", "factor = 2\n")
    before = plug.versions()
    plug.write("helpers/other.py", "factor = 3\n")
    assert all(first != second for first, second in zip(before, plug.versions(), strict=True))
    (tmp_path / "neighbor.py").write_text("x = 1\n")
    (tmp_path / "lonely.py").write_text("import json, neighbor\n\n\nclass Lonely:\n    pass\n")
    lonely = importlib.import_module("lonely").Lonely
    before = code_version(lonely)
    (tmp_path / "neighbor.py").write_text("x = 22\n")
    assert code_version(lonely) != before
