"""JSON that other programs read has neither NaN nor infinities, and what is missing is null."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cse_cli
from cse_cli.analysis.papers import reported_rows
from cse_cli.analysis.score_table import Score, ScoreRow, ScoreTable
from cse_cli.analysis.table_view import to_json as leaderboard
from cse_cli.core.console import to_json
from cse_cli.core.stats import compare_paired
from cse_cli.runs.events import EventLog, read_events
from tests.cse_cli.analysis.leaderboard_runs import mini, tables
from tests.support.records import result

NUMBERS = st.floats() | st.integers(-5, 5) | st.none() | st.booleans()
KEYS = st.sampled_from("abc")
LISTS = st.lists(NUMBERS, max_size=3)
VALUES = NUMBERS | LISTS | st.dictionaries(KEYS, NUMBERS | LISTS, max_size=3)


def strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def with_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_null(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list(map(with_null, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


@pytest.mark.slow
@given(st.dictionaries(KEYS, VALUES))
def test_documents_of_commands(given):
    assert strict(to_json({"document": given})) == {"schema_version": 1, "document": with_null(given)}


@pytest.mark.slow
@given(st.floats(), st.none() | st.floats())
def test_leaderboards(mean, std):
    rows = (ScoreRow(source="measured", name="a", scores={"avg": Score(mean=mean, std=std, n=2)}),)
    found = strict(leaderboard([ScoreTable(kind="encoder", heading="", columns=("avg",), rows=rows)]))
    score = found["tables"][0]["rows"][0]["scores"]["avg"]
    assert (score["mean"], score["std"], score["n"]) == (with_null(mean), with_null(std), 2)


@pytest.mark.slow
@given(st.dictionaries(KEYS, st.floats()))
def test_events(values):
    with TemporaryDirectory() as folder:
        log = EventLog(Path(folder))
        log.append("metrics", step=1, values=values)
        log.close()
        strict((Path(folder) / "events.jsonl").read_text(encoding="utf-8"))
        ((event, _),) = read_events(Path(folder))
        assert list(map(str, map(float, event.data["values"].values()))) == list(map(str, values.values()))


def test_results():
    one = result(scores={"dev": {"spearman": 1.5}})
    assert strict(one.to_json())["scores"] == {"dev": {"spearman": 1.5}}
    with pytest.raises(ValueError, match="Out of range float"):
        result(scores={"dev": {"spearman": math.nan}}).to_json()


def test_every_writer_of_documents_is_tested_here():
    root = Path(cse_cli.__file__).parent
    texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    writers = {name for name, text in texts.items() if re.search(r"json\.dumps\([^\n]*indent=", text)}
    without_measurements = {"training/run.py", "cli/recipes.py"}
    assert writers - without_measurements == {"core/console.py", "core/results.py"}


# Nothing stands in for what is missing.


def test_the_number_of_runs_behind_a_reported_score_is_null_unless_the_paper_states_it():
    counts = {score.n for row in reported_rows() for score in row.scores.values()}
    assert None in counts
    assert not counts & {0, 1}
    overlap = {"dev": {"spearman": 57.2}}
    (row,) = [row for table in tables([mini(word_overlap=overlap)]) for row in table.rows if row.source == "baseline"]
    assert {score.n for score in row.scores.values()} == {None}


def test_a_comparison_without_a_test_has_no_level():
    one = compare_paired([0], [1.0], [2.0])
    assert (one.level, one.p, one.low, one.high, one.seeds_needed) == (None,) * 5
    waits = compare_paired([0, 1, 2], [1.0, 2.0, 3.0], [2.0, 4.0, 3.0]).judged("anytime", None, 0.0)
    assert (waits.level, waits.p_adjusted) == (None, None)
