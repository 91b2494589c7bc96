"""Texts of `cse list`: its help and both forms of a list."""

from __future__ import annotations

from pathlib import Path

from cse_cli.data.requirements import Availability
from cse_cli.listing.inventory import Listing, RecipeLine
from cse_cli.listing.view import print_listing, print_overview
from cse_cli.recipe.requirements import Requirement
from tests.support.command import cse


def test_help_of_list(capsys, monkeypatch, snapshot):
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = cse("list", "--help", capsys=capsys)
    assert out == snapshot


def test_overview_and_lists(capsys, snapshot):
    model = Availability(Requirement("model", "bert-base", ""), "fetchable", bytes=441_000_000)
    recipes = [
        RecipeLine("quickstart", "Quickstart", Path("q.toml"), "here"),
        RecipeLine(
            "large", "A large recipe", Path("l.toml"), "fetchable", "ifcl · 5 · IFCL", (model,),
            "equations, code 22/23 @23d5ebe",
        ),
        RecipeLine("broken", "Broken (not valid: see `cse check`)", Path("b.toml"), "invalid"),
    ]  # fmt: skip
    losses = [{"name": "info_nce", "summary": "Contrast with other sentences.", "distribution": "cse"}]
    studies = [{"name": "studies/one", "title": "A table", "paper": "ifcl · 5", "rows": 3, "seeds": [0, 1]}]
    found = Listing({"losses": losses}, recipes, studies, {})
    print_overview(found)
    print_listing(found, in_full=False)
    print_listing(found, in_full=True)
    assert capsys.readouterr().out == snapshot
