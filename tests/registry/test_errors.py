"""The command that installs the packages of an extra."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from itertools import chain

import pytest

from registry.errors import install_command
from tests.conftest import ROOT

REQUIRES = ["torch>=2.6", "ray[client]>=2.52; extra == 'ray'", 'peft>=0.18 ; extra == "llm"', "a<2,>=1; extra == 'ray'"]


def test_it_names_the_packages_so_that_it_needs_no_index_with_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES if name == "cse-registry" else [])
    assert install_command("ray") == 'pip install "ray[client]>=2.52" "a<2,>=1"'
    assert install_command("llm") == 'pip install "peft>=0.18"'


def test_a_checkout_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert install_command("ui") == 'pip install -e ".[ui]"'


def test_every_extra_that_messages_name_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    sources = [path.read_text("utf-8") for folder in ("cse_cli", "registry") for path in (ROOT / folder).rglob("*.py")]
    named = set(chain.from_iterable(re.findall(r"install_command\(['\"]([\w-]+)", source) for source in sources))
    assert len(named) > 5
    for extra in named:
        packages = [requirement.partition(">")[0] for requirement in extras[extra]]
        assert all(f'"{package}' in install_command(extra) for package in packages)
