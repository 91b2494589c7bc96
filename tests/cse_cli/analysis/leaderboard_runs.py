"""Finished results as a leaderboard gets them."""

import io
import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime

from cse_cli.analysis.experiments import FinishedRuns, group
from cse_cli.analysis.leaderboard import LeaderboardQuery, find_tables, score_tables
from cse_cli.analysis.table_view import WRITERS, print_tables
from cse_cli.analysis.tables import paper_table
from cse_cli.core.identity import Plan
from cse_cli.core.results import STS_TASKS, PaperRow
from tests.support import records

MADE = datetime(2026, 1, 1, tzinfo=UTC)
IFCL = PaperRow(key="ifcl", table="sts_en", row="IFCL-BERT base")


def result(seed=0, score=70.0, recipe_hash="a" * 16, **changes):
    values = {
        "recipe": "ifcl_en",
        "title": "IFCL, English",
        "recipe_hash": recipe_hash,
        "started": MADE,
        "finished": MADE,
        "paper": IFCL,
        "model": "bert-base-uncased",
        "scores": {task: {"spearman": score, "pearson": 1.0} for task in STS_TASKS},
        "curve": {},
        "selected_step": None,
        "metric_for_best_model": None,
    }
    return records.result(seed=seed, **{**values, **changes})


def mini(seed=0, score=60.0, before=45.0, **changes):
    values = {
        "recipe": "mini/ifcl_en",
        "recipe_hash": "d" * 16,
        "title": "Mini",
        "paper": None,
        "model": "mini_en",
        "scores": {"dev": {"spearman": score}},
        "untrained": {"dev": {"spearman": before}},
    }
    return result(seed, **{**values, **changes})


def planned(results):
    """Return runs whose seeds were planned together, so that one t test compares them."""
    plan = Plan(seeds=tuple(sorted(one.seed for one in results)), made=datetime(2025, 1, 1, tzinfo=UTC))
    return [one.model_copy(update={"plan": plan}) for one in results]


def tables(results, status="current", **query):
    return score_tables(FinishedRuns(results, {}, status), LeaderboardQuery(**query))


def ours(table):
    """Return the measured rows of a table."""
    return [row for row in table.rows if row.source == "measured"]


def measured(results, status="current", **query):
    """Return the measured rows of all tables."""
    return [row for table in tables(results, status, **query) for row in ours(table)]


def rows(results, status="current", paper=None, table=None):
    """Return the rows of the papers' tables in which a run stands; of one table's even where none does."""
    ran = group(FinishedRuns(results, status=status))
    found = [paper_table(*address, ran) for address in find_tables(paper, table)]
    return [row for shown in found if ours(shown) or table for row in shown.rows]


def printed(shown):
    """Return what a terminal, or a pipe, gets of tables."""
    out = io.StringIO()
    out.isatty = sys.stdout.isatty
    with redirect_stdout(out):
        print_tables(shown)
    return out.getvalue()


def write(form, shown):
    return printed(shown) if form == "table" else WRITERS[form](shown)


def written(form, results, status="current", **query):
    return write(form, tables(results, status, **query))
