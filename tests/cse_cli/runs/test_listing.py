"""`cse runs ls`: which runs it shows, in which order, and what it says of each."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from cse_cli import tracking
from cse_cli.core.results import STS_TASKS
from cse_cli.core.tables import as_rich
from cse_cli.tracking import view
from cse_cli.tracking.listing import RunQuery, Summary, check_order, parse_since
from cse_cli.tracking.store import Store
from registry.errors import CseError, UnknownNameError
from tests.cse_cli.tracking.stores import result


def record(recipe: str, score: float | None = None, experiment: str = "cse", seconds: float = 1.0, **tags: str) -> str:
    own = {"cse.recipe": recipe, "cse.seed": "1", **{key.replace("_", "."): value for key, value in tags.items()}}
    tracker = tracking.start(f"{recipe} seed 1", {}, own, experiment=experiment)
    if score is not None:
        scores = {"stsb_dev": {"spearman": score}, "stsb": {"spearman": score}}
        tracker.text("result.json", result(recipe=recipe, scores=scores, seconds=seconds).model_dump_json())
    tracker.finish("FAILED" if score is None else "FINISHED")
    return tracker.run_id


@pytest.fixture
def three(store: Store) -> None:
    record("mini/simcse_en", 50.0, "mini/simcse_en", 3.0, cse_set="train.steps=10; no queue", paper="v2")
    record("mini/ifcl_en", 60.0, "mini/ifcl_en", 2.0, paper="v1")
    record("simcse_en", None, "simcse_en")


def shown(**options) -> list[str]:
    return [line.recipe for line in RunQuery(**options).lines()]


@pytest.mark.parametrize(
    ("options", "recipes"),
    [
        ({}, ["simcse_en", "mini/ifcl_en", "mini/simcse_en"]),
        ({"recipe": "simcse_en"}, ["simcse_en"]),
        ({"recipe": "mini/*"}, ["mini/ifcl_en", "mini/simcse_en"]),
        ({"status": "failed"}, ["simcse_en"]),
        ({"status": "FINISHED", "limit": 1}, ["mini/ifcl_en"]),
        ({"tags": ["paper"]}, ["mini/ifcl_en", "mini/simcse_en"]),
        ({"tags": ["paper=v2"]}, ["mini/simcse_en"]),
        ({"tags": ["paper", "cse.seed=2"]}, []),
        ({"experiment": "mini/simcse*"}, ["mini/simcse_en"]),
        ({"since": "1h"}, ["simcse_en", "mini/ifcl_en", "mini/simcse_en"]),
        ({"since": "2999-01-01"}, []),
        ({"sort": "avg"}, ["mini/ifcl_en", "mini/simcse_en", "simcse_en"]),
        ({"sort": "seconds", "limit": 1}, ["mini/simcse_en"]),
        ({"sort": "recipe"}, ["mini/ifcl_en", "mini/simcse_en", "simcse_en"]),
        ({"sort": "status", "limit": 2}, ["simcse_en", "mini/ifcl_en"]),
    ],
)
def test_runs_of_all_experiments_are_filtered_and_sorted(three, options, recipes):
    assert shown(**options) == recipes


def test_what_was_set_and_tagged_is_shown(three):
    *_, line = RunQuery().lines()
    assert line.changed == ("train.steps=10", "no queue")
    assert (line.tags, line.note) == ({"paper": "v2"}, "paper=v2")
    assert line.experiment == "mini/simcse_en"


def test_mistakes_are_named(home):
    with pytest.raises(UnknownNameError, match=r"no 'finish'\. Did you mean 'FINISHED'"):
        RunQuery(status="finish").lines()
    with pytest.raises(UnknownNameError, match="no 'average'"):
        check_order("average")
    with pytest.raises(CseError, match="'yesterday' is no time"):
        RunQuery(since="yesterday").lines()
    assert (
        timedelta(days=2) - timedelta(minutes=1) < datetime.now(UTC) - parse_since("2d") < timedelta(days=2, minutes=1)
    )


def line(**changes) -> Summary:
    plain = {
        "run_id": "3f2a81bc" * 4, "recipe": "mini/focal_infonce_en", "seed": "17", "status": "FINISHED", "dev": 70.123,
        "test": 62.0, "gain": 3.5, "started": datetime(2026, 11, 22, 9, 30, tzinfo=UTC), "seconds": 12345.6,
        "note": "", "name": "", "experiment": "", "changed": (), "tags": {},
    }  # fmt: skip
    return Summary(**{**plain, **changes})


@pytest.mark.parametrize("changed", [(), ("train.steps=1000", "losses.focal_info_nce.temperature=0.07")])
def test_a_terminal_of_80_columns_cuts_nothing(changed):
    written = io.StringIO()
    table = view._table([line(), line(changed=changed)], 80)
    Console(file=written, width=80).print(as_rich(table, gap=1))
    lines = written.getvalue().split("\n")
    assert max(map(len, lines)) <= 80
    assert "…" not in written.getvalue()
    whole = "".join("".join(each) for each in zip(*[text.ljust(80) for text in lines], strict=True)).replace(" ", "")
    for text in ("3f2a81bc", "FINISHED", "70.12", "62.00"):
        assert text in written.getvalue()
    assert ("set" in lines[0].split()) == bool(changed)
    assert len(whole) > 0


def test_the_average_is_over_seven_sets_or_over_what_is_tested() -> None:
    seven = {name: {"spearman": 10.0 + place} for place, name in enumerate(STS_TASKS)}
    whole = result(scores={**seven, "own": {"spearman": 99.0}}, untrained=seven)
    assert (whole.average(), whole.gain) == (13.0, 0.0)
    part = result(untrained={"stsb": {"spearman": 60.0}, "sickr": {"spearman": 60.0}})
    assert (part.average(), part.average(untrained=True), part.gain) == (62.0, 60.0, 2.0)
    assert result(untrained={"stsb": {"spearman": 60.0}}).gain is None
    assert result(scores={"stsb_dev": {"spearman": 1.0}}).average() is None
