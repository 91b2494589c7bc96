"""Every table in a terminal of 80 columns: no line is longer, and no cell is cut."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from cse_cli.analysis.leaderboard import LeaderboardQuery, find_tables, reported_tables
from cse_cli.analysis.table_view import print_tables
from cse_cli.analysis.tables import paper_table
from cse_cli.core.results import STS_TASKS, Result
from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.evaluation.view import print_scores
from cse_cli.jobs.screen import print_results
from cse_cli.runs.index import read_run
from cse_cli.runs.listing import print_runs
from cse_cli.tuning.view import print_search, print_searches, print_verification
from tests.cse_cli.analysis.leaderboard_runs import mini, tables
from tests.cse_cli.analysis.leaderboard_runs import result as ran
from tests.cse_cli.evaluation.test_view import scored
from tests.cse_cli.tuning.searches import search, verification
from tests.support.command import exit_code_of
from tests.support.records import recorded, result

WIDTH = 80
SHOWN = dict.fromkeys(("stsb_dev", *STS_TASKS), "spearman")


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], str]:
    """Return what a terminal shows of what a function prints, checked."""

    def show(print_it: Callable[[], object]) -> str:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout.isatty", lambda: True, raising=False)
            patch.setenv("COLUMNS", str(WIDTH))
            patch.setenv("TERM", "xterm")
            print_it()
            out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        lines = out.split("\n")
        tables = [line for line in lines if not re.search(r"\bcse \w+ --", line)]  # a command to copy stays whole
        assert [line for line in tables if len(line) > WIDTH] == []
        assert [line for line in lines if re.search(r"\S…(\s|$)", line)] == []
        return out

    return show


def three_seeds(recipe: str, digest: str) -> list[Result]:
    made = []
    for seed in range(3):
        scores = {name: {"spearman": 61.234 + seed + place} for place, name in enumerate(SHOWN)}
        before = {name: {"spearman": 58.1} for name in SHOWN}
        made.append(
            result(recipe=recipe, recipe_hash=digest, seed=seed, scores=scores, untrained=before, seconds=12345.6)
        )
    return made


def test_run_with_three_seeds_of_two_recipes(shown):
    results = [*three_seeds("mini/simcse_en", "a" * 16), *three_seeds("mini/ifcl_en", "b" * 16)]
    out = shown(lambda: print_results(results))
    heading = next(line for line in out.split("\n") if "stsb_dev" in line)
    assert heading.split() == ["Avg", "stsb_dev", *STS_TASKS, "step", "time"]
    assert out.count("\n  ±") == 2
    mean = next(line for line in out.split("\n") if line.startswith("mean"))
    assert mean.split()[1] == "66.23"


def test_run_with_more_scores_than_a_line_holds(shown):
    many = SHOWN | {f"transfer_{number}": "spearman" for number in range(9)}
    one = result(scores={name: {"spearman": 50.0 + place} for place, name in enumerate(many)})
    out = shown(lambda: print_results([one]))
    for place in range(len(many)):
        assert f"{50 + place:.2f}" in out
    assert out.count("\nseed 1") == 3


def test_leaderboard(shown):
    seeds = [made(seed, 70.0 + seed) for made in (ran, mini) for seed in range(3)]
    out = shown(lambda: print_tables(tables(seeds)))
    assert "bert-base (en)" in out
    assert "mini_en (en)" in out


@pytest.mark.slow
def test_leaderboard_without_runs(shown):
    out = shown(lambda: print_tables(reported_tables(LeaderboardQuery())))
    assert out.startswith("bert-base (en)")
    assert "cse run ifcl_en" in map(str.rstrip, out.split("\n"))


@pytest.mark.slow
def test_the_community_leaderboard_with_runs(shown):
    out = shown(lambda: print_tables(tables([ran(seed, 70.0 + seed) for seed in range(3)], community=True)))
    assert "BERT-base: community leaderboard" in out
    assert "RankCSE_listMLE" in out
    assert "mirror_bert_drophead_en" in out


@pytest.mark.slow
def test_every_printed_table(shown):
    every = [paper_table(*address, []) for address in find_tables(None, None)]
    assert shown(lambda: print_tables(every)).count("Table") > 20


def test_evaluate_beside_the_papers(shown):
    asked = parse_tasks("sts,transfer,geometry")
    papers = reported_tables(LeaderboardQuery(encoder="bert-base"))[:1]
    out = shown(lambda: print_scores(scored(asked, "bert-base-uncased", "3f2a"), asked, papers))
    assert "IFCL-BERT" in out


def test_runs(shown, home):
    about = {"name": "a name that was given", "changes": ("train.steps=10", "no queue"), "tags": {"for": "x"}}
    long = result(recipe="mini/other/simcse_en_with_a_long_name", seed=4294967295, seconds=123456.7, test_selected=True)
    run = read_run(recorded(long, **about).run_id)
    assert "62.00" in shown(lambda: print_runs([run], {}))


@pytest.mark.parametrize(
    "command",
    [("list",), ("list", "recipes"), ("list", "studies"), ("show", "info_nce"), ("show", "sts"), ("data", "list")],
    ids=" ".join,
)
@pytest.mark.slow
def test_listings(shown, command):
    assert len(shown(lambda: exit_code_of(*command)).split("\n")) > 5


def test_tune(shown):
    found = search(verification=verification((10.0, 11.0, 12.0), (11.0, 12.2, 12.9)))
    assert "trial" in shown(lambda: print_search(found))
    assert "gain" in shown(lambda: print_searches([found]))
    assert found.verification is not None
    assert "p = " in shown(lambda: print_verification(found, found.verification))
