"""Rules between the sections of a recipe: selection, paper row, budget, tuning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cse_cli.recipe.draft import Draft
from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problems
from registry import papers
from registry.errors import UnknownNameError, suggestion

_MAY_CHOOSE = ("dev", "val", "train")
"""How splits begin whose scores may choose a state."""


def check_rules(draft: Draft, problems: Problems) -> None:
    """Report every rule that a recipe breaks although each of its tables is right by itself."""
    _check_budget(draft, problems)
    _check_queue(draft, problems)
    _check_encoders(draft, problems)
    _check_select(draft, problems)
    _check_paper(draft, problems)


def is_test_split(params: Mapping[str, Any]) -> bool:
    """Return whether scores of an evaluator with these parameters come from test data, or may."""
    return not str(params.get("split", "test")).startswith(_MAY_CHOOSE)


def _check_budget(draft: Draft, problems: Problems) -> None:
    if draft.train is None or draft.train.steps == 0:
        return
    if not draft.loss_parts:
        problems.add(("train",), "nothing to train: declare a loss, or set steps = 0", at_key=True)


def _check_queue(draft: Draft, problems: Problems) -> None:
    if draft.queue is None or any(part.entry is None for part in draft.loss_parts.values()):
        return
    for name, loss in draft.losses.items():
        entry = draft.loss_parts[name].entry
        if loss.queue and entry is not None and any(i.kind == "negatives" for i in entry.inputs):
            return
    message = 'no loss reads the queue: use one that takes negatives, or remove it (`remove = ["queue"]`)'
    problems.add(("queue",), message, at_key=True)


def _check_encoders(draft: Draft, problems: Problems) -> None:
    if draft.evaluate is None:
        return
    scored = draft.evaluate.encoder
    if scored not in draft.encoders and draft.encoders:
        hint = suggestion(scored, draft.encoders)
        message = f"unknown encoder '{scored}'.{hint} Known: {', '.join(draft.encoders)}."
        problems.add(("evaluate", "encoder"), message)
    used = {scored, *(view.encoder for view in draft.views.values())}
    for part in draft.parts():
        references = part.entry.references if part.entry else ()
        used |= {str(part.params.get(r.parameter)) for r in references if r.kind == "encoder"}
    for name in draft.encoders:
        if name not in used:
            message = "no view goes through this encoder, and it is not scored: remove it"
            problems.add(("encoders", name), message, at_key=True)


def _check_select(draft: Draft, problems: Problems) -> None:
    if draft.evaluate is None or draft.evaluate.select is None:
        return
    keys: Keys = ("evaluate", "select")
    name, _, metric = draft.evaluate.select.partition(".")
    part = draft.evaluators.get(name)
    if part is None:
        hint = suggestion(name, draft.evaluators) or f" Known: {', '.join(draft.evaluators) or 'none'}."
        problems.add(keys, f"unknown evaluator '{name}'.{hint}")
        return
    if part.entry is None:
        return
    if metric not in part.entry.cls.metrics:
        known = [f"{name}.{m}" for m in part.entry.cls.metrics]
        hint = suggestion(draft.evaluate.select, known) or f" Known: {', '.join(known)}."
        problems.add(keys, f"evaluator '{name}' has no metric '{metric}'.{hint}")
    if is_test_split(part.params) and not draft.evaluate.allow_test_selection:
        split = f"split '{part.params['split']}'" if "split" in part.params else "no `split` of its own"
        problems.add(keys, f"'{name}' scores {split}: choosing a state by test data makes its numbers optimistic. "
                     "Select on a dev split, or set evaluate.allow_test_selection = true to mark them so")  # fmt: skip


def _check_paper(draft: Draft, problems: Problems) -> None:
    if draft.paper is None:
        return
    try:
        tables = papers.load(draft.paper.key).tables
    except UnknownNameError as error:
        problems.add(("paper", "key"), f"{error.message} Known: {', '.join(papers.names())}.")
        return
    table = tables.get(draft.paper.table)
    if table is None:
        hint = suggestion(draft.paper.table, tables) or f" Known: {', '.join(tables)}."
        problems.add(("paper", "table"), f"paper '{draft.paper.key}' has no table '{draft.paper.table}'.{hint}")
    elif draft.paper.row not in table.rows:
        hint = suggestion(draft.paper.row, table.rows) or f" Known: {', '.join(table.rows)}."
        problems.add(("paper", "row"), f"table '{draft.paper.table}' has no row '{draft.paper.row}'.{hint}")
