"""Texts of `cse list`: its help and both forms of a list."""

from __future__ import annotations

from cse_cli.listing.view import print_listing, print_overview
from tests.support.command import cse


def test_help_of_list(capsys, monkeypatch, snapshot):
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = cse("list", "--help", capsys=capsys)
    assert out == snapshot


def test_overview_and_lists(capsys, snapshot):
    model = {"kind": "model", "name": "bert-base", "state": "fetchable", "bytes": 441_000_000}
    plain = {"paper": None, "checks": "", "needs": []}
    recipes = [
        {**plain, "name": "quickstart", "title": "Quickstart", "path": "q.toml"},
        {
            "name": "large", "title": "A large recipe", "path": "l.toml", "paper": "ifcl · 5 · IFCL", "needs": [model],
            "checks": "equations, code 22/23 @23d5ebe",
        },
        {**plain, "name": "broken", "title": "Broken (not valid: see `cse check`)", "path": "b.toml"},
    ]  # fmt: skip
    losses = [{"name": "info_nce", "summary": "Contrast with other sentences.", "distribution": "cse"}]
    studies = [{"name": "studies/one", "title": "A table", "paper": "ifcl · 5", "rows": 3, "seeds": [0, 1]}]
    found = {"losses": losses, "recipes": recipes, "studies": studies}
    print_overview(found)
    print_listing(found, in_full=False)
    print_listing(found, in_full=True)
    assert capsys.readouterr().out == snapshot
