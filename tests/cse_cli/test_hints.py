"""A hint belongs to the cause and to the command: each cause with each command that can meet it."""

from __future__ import annotations

from pathlib import Path

import pytest

import cse_cli
from cse_cli.core.paths import runs
from registry.resources import hub
from tests.support.command import exit_code_of, refused

SIMCSE = "mini/simcse_en"
PARAM = ("--param", "temperature")
RUN = "0123456789"
"""Prefix of a run whose record was imported without its model."""

RECIPE_COMMANDS = {
    "run": (), "check": (), "plan": (), "tune": PARAM, "reproduce": (), "data inspect": (),
}  # fmt: skip
"""Command that reads a recipe and has `--set` and `--unset` → its other arguments."""
FEW = ("check", "plan", "reproduce", "data inspect")
"""Commands to leave out for causes that all commands find in the same way."""


def on_recipe(*settings: str, without: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return every command that reads a recipe, with these settings."""
    shown = [("show", SIMCSE, "--resolved", *settings)]
    return shown + [
        (*name.split(), SIMCSE, *others, *settings) for name, others in RECIPE_COMMANDS.items() if name not in without
    ]


def with_name(name: str, *commands: str) -> list[tuple[str, ...]]:
    """Return commands, in which NAME is a name."""
    return [tuple(name if word == "NAME" else word for word in command.split()) for command in commands]


CAUSES = {
    # cause: (what the message contains, what it must not contain, commands)
    "a recipe with a typo": (("Did you mean 'mini/simcse_en'",), ("Hub", "data.dataset"), with_name(
        "mini/simcse_enn", "run NAME", "run NAME --dry-run", "check NAME", "check --data NAME", "show NAME",
        "plan NAME", "cp NAME x.toml", "tune NAME --param temperature", "compare NAME mini/simcse_en", "reproduce NAME",
        "report NAME", "leaderboard --recipe NAME", "data inspect NAME", "data download --for NAME", "cite NAME",
    )),
    "a recipe file with a typo": (("broken.toml:3:1", "unknown key 'stepz'", "Did you mean 'steps'"), (), with_name(
        "broken.toml", "run NAME", "plan NAME", "tune NAME --param temperature", "reproduce NAME", "report NAME",
        "data inspect NAME", "data download --for NAME",
    )),
    "a run that does not exist": (("does not exist", "cse runs ls"), ("Hub", "recipe"), with_name(
        "fedcba98", "runs show NAME", "runs logs NAME", "runs stop NAME", "runs rm NAME", "run --resume NAME",
        "push NAME me/model",
    )),
    "a run without its model": (("no saved model", "train it again: cse run"), ("Hub",), with_name(
        RUN, "evaluate NAME --tasks geometry", "evaluate NAME"
    )),
    "a model with a typo": (("Did you mean 'mini_en'",), ("pack",), [
        ("run", SIMCSE, "--set", "encoders.online.model=mini_enn"),
        ("tune", SIMCSE, *PARAM, "--set", "encoders.online.model=mini_enn"),
        ("reproduce", SIMCSE, "--set", "encoders.online.model=mini_enn"),
        ("data", "inspect", SIMCSE, "--set", "encoders.online.model=mini_enn"),
        ("evaluate", "mini_enn", "--tasks", "geometry"),
        ("data", "download", "mini_enn"),
    ]),
    "a model for a command without recipe": (("cse data list",), ("run `cse list recipes",), [
        ("evaluate", "mini_enn", "--tasks", "sts"),
    ]),
    "a data set with a typo": (("Did you mean 'wiki1m'",), ("[data]", "pack"), [
        *on_recipe("--set", "data.dataset=wiki1n", without=("check",)),
        *with_name("wiki1n", "data inspect NAME", "data download NAME", "data check NAME", "show NAME",
            "cite NAME"),
    ]),
    "a split with a typo": (("Did you mean 'test'",), (), [
        ("evaluate", "mini_en", "--tasks", "stsb_open/tets"),
        ("run", SIMCSE, "--set", "evaluators.test.split=tets"),
    ]),
    "a text file with a typo": (("own.txt' does not exist", "Did you mean 'my.txt'", "give a path"), ("[data]",), [
        ("run", SIMCSE, "--unset", "data.dataset", "--set", "data.file=own.txt"),
        ("tune", SIMCSE, *PARAM, "--unset", "data.dataset", "--set", "data.file=own.txt"),
        ("data", "inspect", "own.txt"),
        ("data", "inspect", SIMCSE, "--unset", "data.dataset", "--set", "data.file=own.txt"),
    ]),
    "a file of pairs with a typo": (("pears.tsv", "Did you mean 'pairs.tsv'", "give an existing path"), ("`file`",), [
        ("evaluate", "mini_en", "--tasks", "pears.tsv"),
        ("run", SIMCSE, "--unset", "evaluators.dev.dataset", "--set", "evaluators.dev.file=pears.tsv"),
        ("tune", SIMCSE, *PARAM, "--unset", "evaluators.dev.dataset", "--set", "evaluators.dev.file=pears.tsv"),
    ]),
    "a file and a data set": (("--unset data.dataset",), ("remove =",), on_recipe(
        "--set", "data.file=my.txt", without=("check",)
    )),
    "pairs and a data set": (("--unset evaluators.dev.dataset",), ("remove =",), on_recipe(
        "--set", "evaluators.dev.file=pairs.tsv", without=FEW
    )),
    "a parameter with a typo": (("Did you mean 'temperature'",), ("queue", "requires"), [
        *on_recipe("--set", "losses.info_nce.temprature=1", without=("check",)),
        ("tune", SIMCSE, "--param", "temprature"),
    ]),
    "a parameter of a part that is missing": (("The recipe has no queue",), ("max_length",), [
        ("tune", SIMCSE, "--param", "queue_length"),
        ("tune", SIMCSE, "--range", "queue.length=1..4"),
        ("tune", SIMCSE, "--choices", "queue.length=1,4"),
    ]),
    "a choice with a typo": (("Did you mean 'mean'",), ("unknown",), on_recipe(
        "--set", "encoders.online.pooling=meen", without=FEW
    )),
    "a choice that does not exist": (("or 'text' or your own", 'not the text "max"'), (".,",), on_recipe(
        "--set", "encoders.online.pooling=max", without=FEW
    )),
    "a view with a typo": (("Did you mean 'positive'",), ("Remove",), on_recipe(
        "--set", "losses.info_nce.views.positive=positiv", without=FEW
    )),
    "a metric with a typo": (("Did you mean 'dev.spearman'",), (), [
        ("run", SIMCSE, "--set", "evaluate.metric_for_best_model=dev.spearmen"),
        ("tune", SIMCSE, *PARAM, "--metric", "dev.spearmen"),
    ]),
    "a device that is missing": (("0 CUDA devices found", "--device auto"), (), [
        ("run", SIMCSE, "--device", "cuda:7"),
        ("tune", SIMCSE, *PARAM, "--device", "cuda:7"),
        ("evaluate", "mini_en", "--tasks", "geometry", "--device", "cuda:7"),
    ]),
}  # fmt: skip
CASES = [(cause, command) for cause, (_, _, commands) in CAUSES.items() for command in commands]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cause", "command"), CASES, ids=lambda part: part if isinstance(part, str) else " ".join(part)
)
def test_the_hint_belongs_to_cause_and_command(cause, command, folder, home, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    for name in ("pairs.tsv", "my.txt"):
        Path(name).touch()
    Path("broken.toml").write_text(f'extends = "{SIMCSE}"\n[train]\nstepz = 3\n')
    (runs() / ("0123456789abcdef" * 2)).mkdir(parents=True)
    shown = str(refused(*command))
    right, wrong, _ = CAUSES[cause]
    for part in right:
        assert part in shown
    for part in wrong:
        assert part not in shown


@pytest.mark.parametrize("setting", ["data.dataset=wiki1n", "data.file=my.txt", "losses.info_nce.temprature=1"])
def test_check_prints_what_a_run_would_refuse(setting, folder, capsys):
    ran = str(refused("run", SIMCSE, "--set", setting))
    assert exit_code_of("check", SIMCSE, "--set", setting) == 2
    assert ran.strip() in capsys.readouterr().out


@pytest.mark.parametrize("command", [*RECIPE_COMMANDS, "show"])
def test_a_message_names_only_options_that_the_command_has(command, capsys):
    """Messages about recipes name `--set`, `--unset` and `--plugin`."""
    assert exit_code_of(*command.split(), "--help") == 0
    shown = capsys.readouterr().out
    assert "--set" in shown
    assert "--unset" in shown


def test_the_names_of_the_package_are_listed():
    assert {"run", "evaluate", "load_model", "__version__"} <= set(dir(cse_cli))


@pytest.mark.slow
def test_a_model_with_a_typo_gets_the_nearest_name_when_the_hub_fails_on_the_way(monkeypatch):
    monkeypatch.setattr(hub, "unreachable", lambda: None)
    assert "Did you mean 'mini_en'" in str(refused("data", "download", "mini_enn"))
