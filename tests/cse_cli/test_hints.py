"""A hint belongs to the cause and to the command: what each of several callers of one text prints."""

from __future__ import annotations

from pathlib import Path

import pytest

import cse_cli
from cse_cli.core.paths import runs
from tests.support.command import refused

SIMCSE = "mini/simcse_en"
CAUSES = {
    # command: (what its message contains, what it must not contain)
    ("run", SIMCSE, "--set", "encoders.online.pooling=meen"): (("Did you mean 'mean'",), ("unknown",)),
    ("run", SIMCSE, "--set", "encoders.online.pooling=max"): (("or 'text' or your own", 'not the text "max"'), (".,",)),
    ("run", SIMCSE, "--set", "losses.info_nce.views.positive=positiv"): (("Did you mean 'positive'",), ("Remove",)),
    ("run", SIMCSE, "--set", "data.file=my.txt"): (("--unset data.dataset",), ("remove =",)),
    ("run", SIMCSE, "--set", "evaluators.dev.file=x.tsv"): (("--unset evaluators.dev.dataset",), ("remove =",)),
    ("run", SIMCSE, "--set", "encoders.online.model=mini_enn"): (("Did you mean 'mini_en'",), ("pack",)),
    ("evaluate", "mini_enn", "--tasks", "geometry"): (("Did you mean 'mini_en'",), ("pack",)),
    ("data", "download", "mini_enn"): (("Did you mean 'mini_en'",), ("pack",)),
    ("evaluate", "mini_en", "--tasks", "pears.tsv"): (("Did you mean 'pairs.tsv'",), ("`file`",)),
    ("data", "inspect", "no.txt"): (("no.txt' does not exist", "give a path"), ("[data]",)),
    ("data", "inspect", "wiki1n"): (("Did you mean 'wiki1m'",), ("[data]",)),
    ("run", SIMCSE, "--set", "data.file=no.txt", "--unset", "data.dataset"): (("no.txt' does not exist",), ("`file`",)),
    ("evaluate", "0123456789", "--tasks", "geometry"): (("no saved model", "train it again: cse run"), ("Hub",)),
    ("tune", SIMCSE, "--param", "queue_length"): (("The recipe has no queue",), ("max_length",)),
    ("tune", SIMCSE, "--param", "temprature"): (("Did you mean 'temperature'",), ("queue",)),
}  # fmt: skip


@pytest.mark.parametrize("command", CAUSES, ids=" ".join)
def test_the_hint_belongs_to_cause_and_command(command, folder, home, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    Path("pairs.tsv").touch()
    (runs() / ("0123456789abcdef" * 2)).mkdir(parents=True)
    shown = str(refused(*command))
    right, wrong = CAUSES[command]
    for part in right:
        assert part in shown
    for part in wrong:
        assert part not in shown


def test_the_names_of_the_package_are_listed():
    assert {"run", "evaluate", "load_model", "__version__"} <= set(dir(cse_cli))
