"""Tables of results on stdout, and what a run would do: devices, parts, shapes and one batch per view."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from cse_cli.analysis.experiments import headlines, metric_value
from cse_cli.analysis.reproduced import compare_with_reproductions
from cse_cli.core.console import stdout_console
from cse_cli.core.formatting import counted, duration
from cse_cli.core.paths import runs as run_folders
from cse_cli.core.results import WORD_OVERLAP, Result, Scores
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_rich_parts, plain_table
from cse_cli.evaluation.evaluate import has_data
from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.jobs.job import Job
from cse_cli.recipe.files import bare_name
from cse_cli.recipe.schema import Recipe
from cse_cli.training.build import Prepared
from registry import EVALUATORS
from registry.papers import AVERAGE
from registry.tokens import Tokens

RunPlan = dict[str, Any]
"""JSON-ready result of `describe_run`."""


def shown_metrics(recipe: Recipe) -> dict[str, str]:
    """Return the metric to show of each evaluator of a recipe."""
    return {key: EVALUATORS[part.name].cls.metric for key, part in recipe.evaluators.items()}


def print_results(
    results: Sequence[Result],
    metrics: Mapping[str, Mapping[str, str]],
) -> None:
    """Print a table per experiment: untrained encoder, one row per seed, mean, standard deviation and word overlap.

    Args:
        results: Results of runs.
        metrics: Hash of a recipe → evaluator → metric to show.
    """
    with stdout_console() as out:
        for experiment in dict.fromkeys(result.experiment for result in results):
            runs = [result for result in results if result.experiment == experiment]
            out.print(Text.assemble((runs[0].recipe, "bold"), f" · {runs[0].title}"), soft_wrap=True)
            recipe = runs[0].recipe_hash
            table = _results_table(runs, metrics[recipe])
            for part in as_rich_parts(table, out.width, gap=1):
                out.print(part)
            for run in runs:
                if run.early_stop is not None:
                    out.print(Text(f"seed {run.seed} {run.early_stop.text}"), soft_wrap=True)
            for line in below_untrained(runs):
                out.print(Text(line, "yellow"), soft_wrap=True)
            for line in (*compare_with_reproductions(runs), *speed_line(runs)):
                out.print(Text(line), soft_wrap=not out.is_terminal)
            out.print()


def _results_table(runs: Sequence[Result], shown: Mapping[str, str]) -> Table:
    """Return the table of one recipe. The average of the seven STS sets comes first if all are scored."""
    columns = {name: f"{name}.{metric}" for name, metric in shown.items()}
    if all(metric_value(run.scores, AVERAGE) is not None for run in runs):
        columns = {"Avg": AVERAGE, **columns}
    metrics = list(columns.values())
    untrained = runs[0].untrained
    rows = [_row("untrained", _scores(untrained, metrics), emphasis="untrained")] if untrained else []
    for run in runs:
        label = f"seed {run.seed}" + (" (test-selected)" if run.test_selected else "")
        step = "" if run.selected_step is None else str(run.selected_step)
        rows.append(_row(label, _scores(run.scores, metrics), step, duration(run.seconds)))
    if len(runs) > 1:
        scores = [[metric_value(run.scores, metric) for run in runs] for metric in metrics]
        rows += _mean_rows("mean", [[value for value in values if value is not None] for values in scores])
    if untrained:
        gains = []
        for metric in metrics:
            pairs = [(metric_value(run.scores, metric), metric_value(run.untrained, metric)) for run in runs]
            gains.append([after - before for after, before in pairs if after is not None and before is not None])
        rows += _mean_rows("gain", gains, "+")
    if overlap := runs[0].word_overlap:
        rows.append(_row(WORD_OVERLAP, _scores(overlap, metrics), emphasis="baseline"))
    return Table("", (*columns, "step", "time"), tuple(rows), align="p" + "r" * (len(columns) + 2))


def _row(label: str, texts: Sequence[str], step: str = "", took: str = "", emphasis: str = "") -> Row:
    return Row(label, tuple(map(Cell, (*texts, step, took))), emphasis, below=emphasis == "spread")


def _mean_rows(label: str, values: Sequence[Sequence[float]], sign: str = "") -> Iterator[Row]:
    """Yield a row of means over seeds and a row of their standard deviations."""
    yield _row(label, [f"{statistics.mean(seeds):{sign}.2f}" if seeds else "" for seeds in values])
    if any(len(seeds) > 1 for seeds in values):
        spreads = [f"{statistics.stdev(seeds):.2f}" if len(seeds) > 1 else "" for seeds in values]
        yield _row("± std", spreads, emphasis="spread")


def _scores(scores: Scores, metrics: Sequence[str]) -> list[str]:
    values = [metric_value(scores, metric) for metric in metrics]
    return ["" if value is None else f"{value:.2f}" for value in values]


def below_untrained(runs: Sequence[Result]) -> list[str]:
    """Return a line for each run that scores lower than its untrained encoder."""
    worse = [(run, one) for run in runs for one in headlines(run) if one.gain is not None and one.gain < 0]
    return [
        f"seed {run.seed} scores lower than its untrained encoder: {one.name} {one.score:.2f}, untrained "
        f"{one.untrained:.2f}"
        for run, one in worse
    ]


_WIDE = 60
"""Longest command with which the others are aligned."""

_SENTENCES = '["A man is singing.", "Someone sings."]'


def _argument(result: Result) -> str:
    """Return the name of the recipe, or the path of its file if it has no bare name."""
    return result.recipe if not result.source or bare_name(Path(result.source)) else result.source


def next_steps(results: Sequence[Result], settings: Sequence[str] = ()) -> list[str]:
    """Return the path of the model with the best dev score, code that loads it, and the next commands.

    `settings` are options that changed the recipes, so that more seeds belong to the same experiment.
    """
    best = max(results, key=lambda result: result.curve.get(result.selected_step or 0, float("-inf")))
    run_id, folder = str(best.run_id), run_folders() / str(best.run_id) / "model"
    which = "" if len(results) == 1 else f" with the best dev score, {best.recipe} seed {best.seed}"
    python = "from cse_cli import load_model", f'model = load_model("{run_id[:8]}")', f"model.encode({_SENTENCES})"
    lines = [f"model{which}: {folder}", *(f"  {line}" for line in python)] if folder.is_dir() else []
    recipes = list(dict.fromkeys(_argument(result) for result in results))
    commands: dict[str, str] = {}
    if folder.is_dir() and best.language == "en" and not has_data(parse_tasks("sts")):
        commands[f"cse evaluate {run_id[:8]} --tasks stsb_open"] = "score it on the test set of the package"
    elif folder.is_dir():
        commands[f"cse evaluate {run_id[:8]}"] = "score it on the papers' test sets"
    commands["cse leaderboard"] = "compare with published results"
    if len(recipes) > 1:
        commands[shlex.join(["cse", "compare", *recipes])] = "test the difference"
    elif len(results) == 1:
        commands[shlex.join(["cse", "run", *recipes, *settings, "--seeds", "3"])] = "add seeds"
    width = max((len(command) for command in commands if len(command) <= _WIDE), default=0)
    return [*lines, "next:", *(f"  {command:<{width}}  {why}" for command, why in commands.items())]


def full_runs(results: Sequence[Result]) -> list[str]:
    """Return the commands of the full runs after `--fast-dev-run`."""
    recipes = list(dict.fromkeys(_argument(result) for result in results))
    return [
        "every part works; these scores are not results",
        "next:",
        f"  {shlex.join(['cse', 'plan', *recipes])}  estimate time, disk and memory of the full run",
        f"  {shlex.join(['cse', 'run', *recipes])}   start it",
    ]


def speed_line(runs: Sequence[Result]) -> list[str]:
    """Return the speed of a recipe's runs in one line, or an empty list without training."""
    speeds = [run.speed for run in runs if run.speed is not None]
    if not speeds:
        return []
    total = sum(sum(speed.seconds.values()) for speed in speeds) or 1
    shares = {part: sum(speed.seconds.get(part, 0.0) for speed in speeds) / total for part in speeds[0].seconds}
    parts = [
        _mean("{:,.0f} sentences/s", [run.sentences_per_second for run in runs if run.speed is not None]),
        _mean("{:,.0f} tokens/s", [speed.tokens_per_second for speed in speeds]),
        *(f"{part} {share:.0%}" for part, share in shares.items() if share >= 0.005),
        f"peak {max(speed.peak_memory for speed in speeds) / 1e9:.1f} GB",
    ]
    return ["speed: " + ", ".join(filter(None, parts))]


def _mean(text: str, values: Sequence[float | None]) -> str:
    """Return a text with the mean of the known values, or an empty string if none is known."""
    known = [value for value in values if value]
    return text.format(statistics.mean(known)) if known else ""


def describe_run(job: Job, prepared: Prepared) -> RunPlan:
    """Return the plan of a run, with its first batch."""
    recipe = job.loaded.recipe
    weights = list(prepared.experiment.method.parameters())
    batch = {} if prepared.batches is None else prepared.batches.batch(0)
    return {
        "recipe": job.loaded.name,
        "title": recipe.title,
        "seed": job.seed,
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
    view = prepared.experiment.recipe.views[name]
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


def print_plans(plans: Sequence[RunPlan], place: str) -> None:
    """Print the plans of all runs and their placement."""
    for plan in plans:
        _print_plan(plan)
    if plans:
        with stdout_console() as out:
            out.print(Text(f"{counted(len(plans), 'run')}, {place}"), soft_wrap=True)


def _print_plan(plan: RunPlan) -> None:
    steps = f"{plan['steps']:,} steps of {plan['batch_size']} sentences" if plan["steps"] else "no training"
    rows = [
        ("device", f"{plan['device']}, {plan['precision']}"),
        ("weights", f"{plan['weights']:,}, {plan['trained']:,} trained"),
        ("training", f"{steps}, {plan['sentences']:,} in all"),
        ("evaluators", ", ".join(plan["evaluators"])),
    ]
    if plan["losses"]:
        rows.append(("first step", ", ".join(f"loss {label} {loss:.4f}" for label, loss in plan["losses"].items())))
    for name, view in plan["views"].items():
        sizes = {"ids": view, **view["side"]}
        rows.append((f"view {name}", f"encoder {view['encoder']}, augment {', '.join(view['augment']) or 'none'}"))
        for column, size in sizes.items():
            rows.append((column, f"{tuple(size['shape'])}, {size['real_tokens']:,} real tokens"))
        rows += [("first row", " ".join(map(str, view["first_row"]))), ("", view["first_text"] or "")]
    with stdout_console() as out:
        out.print(Text.assemble((plan["recipe"], "bold"), f" · {plan['title']} · seed {plan['seed']}"), soft_wrap=True)
        out.print(as_rich(plain_table(("part", "value"), rows)))
