"""What of the code counts: edits of a plug-in, of its helpers and of what a package passes on."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap

import pytest

from registry import LOSSES
from registry.code import _used_by, code_digest, modules_digest
from tests.support.errors import refuses

LOSS = '''
"""A loss."""
from plug.helpers.maths import scaled


class {name}:
    """A class."""

    rate = 2
    """An attribute."""

    def forward(self, x):
        """Return it."""
        total = scaled(x)  # a comment
        return {{"a": total, "b": [total, 1]}}
'''
REFORMATTED = """
# Other words.
from plug.helpers.maths import (
    scaled,
)
class {name}:
    'Another docstring.'
    rate = 2



    def forward(self, x):
        total = (scaled(x))
        return {{
            'a': total,
            'b': [
                total,
                1,
            ],
        }}
"""


class Plug:
    """A package of two losses in a temporary folder, whose `__init__` passes both on."""

    def __init__(self, folder):
        self.folder = folder
        self.write("__init__.py", "from .one import One\nfrom .two import Two\n__all__ = ['One', 'Two']\n")
        self.write("one.py", LOSS.format(name="One"))
        self.write("two.py", LOSS.format(name="Two"))
        self.write("helpers/__init__.py", "")
        self.write("helpers/maths.py", "def scaled(x):\n    return 2 * x\n")
        self.write("unused.py", "x = 1\n")

    def write(self, name, text):
        path = self.folder / "plug" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def digests(self):
        plug = importlib.import_module("plug")
        return code_digest(plug.One), code_digest(plug.Two)


@pytest.fixture
def plug(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Plug(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("plug", "lonely", "neighbor")]:
        del sys.modules[name]


def test_comments_docstrings_and_layout_do_not_count(plug):
    before = plug.digests()
    plug.write("one.py", REFORMATTED.format(name="One"))
    assert plug.digests() == before


@pytest.mark.parametrize(
    ("old", "new"),
    [("rate = 2", "rate = 3"), ("total", "summe"), ('"a"', '"c"'), ("import scaled", "import scaled as scaled2")],
)
def test_an_edit_changes_the_digest_of_one_loss_only(plug, old, new):
    before = plug.digests()
    plug.write("one.py", LOSS.format(name="One").replace(old, new))
    after = plug.digests()
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_an_edit_of_a_shared_helper_changes_both(plug):
    before = plug.digests()
    plug.write("helpers/maths.py", "def scaled(x):\n    return 3 * x\n")
    assert not set(plug.digests()) & set(before)


@pytest.mark.parametrize(
    "line",
    [
        "from .helpers import maths",
        "import plug.helpers.maths",
        "from plug.helpers.maths import *",
        "def f():\n    from .helpers.maths import scaled",
        "try:\n    from . import gone\nexcept ImportError:\n    from .helpers import maths as gone",
    ],
)
def test_every_form_of_import_is_followed(plug, line):
    plug.write("one.py", f"{line}\nclass One: pass\n")
    before = plug.digests()
    plug.write("helpers/maths.py", "def scaled(x):\n    return 3 * x\n")
    assert plug.digests()[0] != before[0]


def test_a_name_passed_on_is_followed_to_its_module(plug):
    plug.write("helpers/__init__.py", "from .maths import scaled\nfrom .other import thing\n")
    plug.write("helpers/other.py", "thing = 1\n")
    plug.write("one.py", "from plug.helpers import scaled\nclass One: pass\n")
    before = plug.digests()[0]
    plug.write("helpers/other.py", "thing = 2\n")
    plug.write("helpers/__init__.py", "from .maths import scaled\nfrom .other import thing, thing as more\n")
    assert plug.digests()[0] == before
    plug.write("helpers/maths.py", "def scaled(x):\n    return 3 * x\n")
    changed = plug.digests()[0]
    assert changed != before
    plug.write("helpers/__init__.py", "from .maths import twice as scaled\n")
    assert plug.digests()[0] not in (before, changed)


def test_what_a_package_defines_itself_counts(plug):
    plug.write("helpers/__init__.py", "def scaled(x):\n    return x\n")
    plug.write("one.py", "from plug.helpers import scaled\nclass One: pass\n")
    before = plug.digests()[0]
    plug.write("helpers/__init__.py", "def scaled(x):\n    return -x\n")
    assert plug.digests()[0] != before


def test_a_new_loss_in_the_package_changes_no_other(plug):
    before = plug.digests()
    plug.write("three.py", "class Three: pass\n")
    plug.write("__init__.py", "from .one import One\nfrom .two import Two\nfrom .three import Three\n")
    plug.write("unused.py", "x = 2\n")
    assert plug.digests() == before


def test_imports_for_type_checkers_do_not_count(plug):
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from plug import unused\nclass One: pass\n"
    plug.write("one.py", guarded)
    before = plug.digests()[0]
    plug.write("unused.py", "x = 2\n")
    assert plug.digests()[0] == before
    plug.write("one.py", guarded.replace("from plug import unused", "from plug import two"))
    assert plug.digests()[0] == before


def test_a_helper_next_to_a_single_module_counts(plug, tmp_path):
    (tmp_path / "neighbor.py").write_text("x = 1\n")
    (tmp_path / "lonely.py").write_text("import json, neighbor\nclass Lonely: pass\n")
    lonely = importlib.import_module("lonely").Lonely
    before = code_digest(lonely)
    (tmp_path / "neighbor.py").write_text("x = 22\n")
    assert code_digest(lonely) != before


def test_files_that_are_no_source_count_with_their_bytes(plug):
    before = plug.digests()[0]
    plug.write("one.py", "class One: (")
    broken = plug.digests()[0]
    plug.write("one.py", "class One: (  # more")
    assert len({before, broken, plug.digests()[0]}) == 3


def test_a_class_without_a_file_counts_with_its_name():
    scope = {"__name__": "typed_in"}
    exec("class A: pass\nclass B: pass", scope)
    assert code_digest(scope["A"]) != code_digest(scope["B"])


def test_nothing_is_imported_for_a_digest(plug):
    plug.write("one.py", "def f():\n    from plug.loud import x\nclass One: pass\n")
    plug.write("loud.py", "raise RuntimeError('imported')\n")
    before = plug.digests()[0]
    plug.write("loud.py", "raise RuntimeError('imported again')\n")
    assert plug.digests()[0] != before
    assert "plug.loud" not in sys.modules


def test_each_component_has_a_digest_of_its_own_parts():
    digests = {entry.name: code_digest(entry.cls) for entry in LOSSES if entry.distribution == "cse"}
    modules = {entry.cls.__module__ for entry in LOSSES if entry.distribution == "cse"}
    assert len(set(digests.values())) == len(modules)
    start = importlib.import_module("registry.code")._find(LOSSES["info_nce"].cls.__module__)
    used = {line.split()[0] for line in _used_by(start)}
    assert {"registry.losses.info_nce", "registry.losses.contrast", "registry.types"} <= used
    assert not used & {"registry.core", "registry.signature", "registry.losses.alignment"}


def test_all_processes_agree():
    script = "from registry import LOSSES; from registry.code import code_digest; print(code_digest(LOSSES['{}'].cls))"
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script.format("info_nce"))], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == code_digest(LOSSES["info_nce"].cls)


def test_modules_have_a_digest_and_must_exist(plug):
    before = modules_digest(["plug"])
    plug.write("unused.py", "x = 2\n")
    assert modules_digest(["plug"]) != before
    with refuses("code.missing_module", "plug.gone"):
        modules_digest(["plug.gone"])


def test_modules_that_fetch_do_not_count():
    from registry import ENCODERS
    from registry.code import _find

    used = {line.partition(" ")[0] for line in _used_by(_find(ENCODERS["transformer"].cls.__module__))}
    assert {"registry.encoders.transformer", "registry.resources.models"} <= used
    assert not {"registry.resources.hub", "registry.resources.download", "registry.errors"} & used
