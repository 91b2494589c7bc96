"""Finished runs as tables on stdout; and what a run would do: devices, parts, shapes and one batch of each view."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from cse_cli.analysis.reproductions import compare_with_reproductions
from cse_cli.core.console import stdout_console, write_json
from cse_cli.core.formatting import counted, mean_text
from cse_cli.core.results import Result
from cse_cli.core.tables import Cell, Row, Table, as_rich, plain_table
from cse_cli.training.build import Prepared
from registry import EVALUATORS
from registry.tokens import Tokens

RunPlan = dict[str, Any]
"""JSON-ready, as `describe_run` makes it."""


def shown_metrics(names: Mapping[str, str]) -> dict[str, str]:
    """Return evaluator key → the metric its component declares as the one to show.

    Args:
        names: Evaluator key → registered name.
    """
    return {key: EVALUATORS[name].cls.metric for key, name in names.items()}


def write_results(results: Sequence[Result]) -> None:
    """Write one JSON document with all results."""
    write_json({"results": [result.model_dump(mode="json") for result in results]})


def print_results(results: Sequence[Result], metrics: Mapping[str, Mapping[str, str]]) -> None:
    """Print a table per recipe: a row per seed, the untrained encoder above, mean ± std and what others got below.

    Args:
        results: In the order they ran.
        metrics: Recipe hash → evaluator → metric shown; runs of one hash are in one table.
    """
    with stdout_console() as out:
        for recipe in dict.fromkeys(result.recipe_hash for result in results):
            runs = [result for result in results if result.recipe_hash == recipe]
            out.print(Text.assemble((runs[0].recipe, "bold"), f" · {runs[0].title}"), soft_wrap=True)
            out.print(as_rich(_results_table(runs, metrics[recipe]), gap=1))
            for line in (*compare_with_reproductions(runs), *speed_line(runs)):
                out.print(Text(line), soft_wrap=True)
            out.print()


def _results_table(runs: Sequence[Result], shown: Mapping[str, str]) -> Table:
    rows: list[tuple[str, Sequence[str], str, str]] = []

    def scores(values: Mapping[str, Mapping[str, float]]) -> list[str]:
        return [f"{values[name][metric]:.2f}" if name in values else "" for name, metric in shown.items()]

    if runs[0].untrained:
        rows.append(("untrained", scores(runs[0].untrained), "", ""))
    for run in runs:
        label = f"seed {run.seed}" + (" (test-selected)" if run.test_selected else "")
        kept = "" if run.selected_step is None else str(run.selected_step)
        rows.append((label, scores(run.scores), kept, f"{run.seconds:.0f}"))
    if len(runs) > 1:
        means = [mean_text([run.scores[name][metric] for run in runs]) for name, metric in shown.items()]
        rows.append(("mean ± std", means, "", ""))
    if runs[0].untrained:
        rows.append(("gain", [_gain(runs, name, metric) for name, metric in shown.items()], "", ""))
    lines = tuple(Row(label, tuple(map(Cell, (*texts, step, took)))) for label, texts, step, took in rows)
    return Table("", (*shown, "step", "seconds"), lines, align="l" + "r" * (len(shown) + 2))


def _gain(runs: Sequence[Result], name: str, metric: str) -> str:
    """Return the difference to the untrained encoder, where it was scored."""
    gains = [run.scores[name][metric] - run.untrained[name][metric] for run in runs if name in run.untrained]
    spread = f" ± {statistics.stdev(gains):.2f}" if len(gains) > 1 else ""
    return f"{statistics.mean(gains):+.2f}{spread}" if gains else ""


def speed_line(runs: Sequence[Result]) -> list[str]:
    """Return where the time of a recipe's runs went, in one line; nothing where nothing was trained."""
    speeds = [run.speed for run in runs if run.speed is not None]
    if not speeds:
        return []
    rates = [run.sentences_per_second for run in runs if run.sentences_per_second]
    tokens = [speed.tokens_per_second for speed in speeds if speed.tokens_per_second]
    used = [speed.model_flop_utilisation for speed in speeds if speed.model_flop_utilisation]
    total = sum(sum(speed.seconds.values()) for speed in speeds) or 1
    shares = {part: sum(speed.seconds.get(part, 0.0) for speed in speeds) / total for part in speeds[0].seconds}
    parts = [
        *([f"{statistics.mean(rates):,.0f} sentences/s"] if rates else []),
        *([f"{statistics.mean(tokens):,.0f} tokens/s"] if tokens else []),
        *([f"{statistics.mean(used):.0%} of the device's peak"] if used else []),
        *(f"{part} {share:.0%}" for part, share in shares.items() if share >= 0.005),
        f"peak {max(speed.peak_memory for speed in speeds) / 1e9:.1f} GB",
    ]
    return [f"speed: {', '.join(parts)}"]


def describe_run(prepared: Prepared) -> RunPlan:
    """Return what a run would do, with the first batch."""
    recipe = prepared.job.loaded.recipe
    weights = list(prepared.experiment.method.parameters())
    batch = {} if prepared.batches is None else prepared.batches.batch(0)
    return {
        "recipe": prepared.job.loaded.name,
        "title": recipe.title,
        "seed": prepared.job.seed,
        "device": prepared.compute.describe(),
        "precision": prepared.compute.precision,
        "weights": sum(p.numel() for p in weights),
        "trained": sum(p.numel() for p in weights if p.requires_grad),
        "steps": prepared.steps,
        "batch_size": recipe.train.batch_size,
        "sentences": prepared.sentences,
        "evaluators": list(recipe.evaluators),
        "views": {name: _describe_view(prepared, name, tokens) for name, tokens in batch.items()},
    }


def _describe_view(prepared: Prepared, name: str, tokens: Tokens) -> dict[str, Any]:
    view = prepared.job.loaded.recipe.views[name]
    first = tokens.ids[0][tokens.mask[0] == 1].tolist()
    decode = getattr(prepared.experiment.plans[name].vocabulary, "decode", None)
    return {
        "encoder": view.encoder,
        "augment": [part.name for part in view.augment],
        **_size(tokens),
        "side": {column: _size(side) for column, side in tokens.side.items()},
        "first_row": first,
        "first_text": None if decode is None else decode(first),
    }


def _size(tokens: Tokens) -> dict[str, Any]:
    return {"shape": list(tokens.ids.shape), "real_tokens": int(tokens.mask.sum())}


def write_plans(plans: Sequence[RunPlan], place: str) -> None:
    """Write one JSON document with all plans, and where the runs go."""
    write_json({"plans": plans, "place": place})


def print_plans(plans: Sequence[RunPlan], place: str) -> None:
    """Print the plans of all runs, and where they go."""
    for plan in plans:
        print_plan(plan)
    if plans:
        with stdout_console() as out:
            out.print(Text(f"{counted(len(plans), 'run')}, {place}"), soft_wrap=True)


def print_plan(plan: RunPlan) -> None:
    """Print the plan of a run."""
    budget = f"{plan['steps']:,} steps of {plan['batch_size']} sentences" if plan["steps"] else "no training"
    with stdout_console() as out:
        out.print(Text.assemble((plan["recipe"], "bold"), f" · {plan['title']} · seed {plan['seed']}"), soft_wrap=True)
        for line in (
            f"device {plan['device']} · precision {plan['precision']}",
            f"{plan['weights']:,} weights, {plan['trained']:,} trained · {budget}",
            f"{plan['sentences']:,} sentences · evaluators: {', '.join(plan['evaluators']) or '–'}",
        ):
            out.print(Text(line), soft_wrap=True)
        for name, view in plan["views"].items():
            rows = [
                ("augment", ", ".join(view["augment"]) or "–"),
                ("ids", _show_size(view)),
                *((f"side: {column}", _show_size(side)) for column, side in view["side"].items()),
                ("first row", " ".join(map(str, view["first_row"]))),
                *([("", view["first_text"])] if view["first_text"] is not None else []),
            ]
            out.print(Text(f"view {name} → encoder {view['encoder']}", "italic"), soft_wrap=True)
            out.print(as_rich(plain_table(("what", "value"), rows)))


def _show_size(size: dict[str, Any]) -> str:
    return f"{tuple(size['shape'])}, {size['real_tokens']:,} real tokens"
