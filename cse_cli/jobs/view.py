"""Finished runs as tables on stdout; and what a run would do: devices, parts, shapes and one batch of each view."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.text import Text

from cse_cli.analysis.reproductions import compare_with_reproductions
from cse_cli.core.console import stdout_console, write_json
from cse_cli.core.formatting import counted, duration
from cse_cli.core.paths import runs as run_folders
from cse_cli.core.results import Result, Scores, headlines, metric_value
from cse_cli.core.tables import Cell, Row, Table, as_rich, as_rich_parts, plain_table
from cse_cli.runs.index import RecordedRun
from cse_cli.training.build import Prepared
from registry import EVALUATORS
from registry.papers import AVERAGE
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
    """Print a table per experiment: a row per seed, the untrained encoder above, mean ± std and what others got below.

    Args:
        results: In the order they ran.
        metrics: Recipe hash → evaluator → metric shown.
    """
    with stdout_console() as out:
        for experiment in dict.fromkeys(result.experiment for result in results):
            runs = [result for result in results if result.experiment == experiment]
            out.print(Text.assemble((runs[0].recipe, "bold"), f" · {runs[0].title}"), soft_wrap=True)
            table = _results_table(runs, metrics[runs[0].recipe_hash], stacked=out.is_terminal)
            for part in as_rich_parts(table, out.width, gap=1):
                out.print(part)
            for line in below_untrained(runs):
                out.print(Text(line, "yellow"), soft_wrap=True)
            for line in (*compare_with_reproductions(runs), *speed_line(runs)):
                out.print(Text(line), soft_wrap=not out.is_terminal)
            out.print()


def _results_table(runs: Sequence[Result], shown: Mapping[str, str], *, stacked: bool) -> Table:
    """Return a row a seed; the average of the seven sets first, where they are scored.

    Args:
        runs: Of one recipe.
        shown: Evaluator → metric.
        stacked: Whether it is kept narrow for a terminal: spreads on lines of their own, times with their units.
    """
    columns = {name: f"{name}.{metric}" for name, metric in shown.items()}
    if all(metric_value(run.scores, AVERAGE) is not None for run in runs):
        columns = {"Avg": AVERAGE, **columns}
    before = runs[0].untrained
    rows = [_row("untrained", _texts(before, columns), emphasis="untrained")] if before else []
    for run in runs:
        label = f"seed {run.seed}" + (" (test-selected)" if run.test_selected else "")
        kept = "" if run.selected_step is None else str(run.selected_step)
        took = duration(run.seconds) if stacked else f"{run.seconds:.0f}"
        rows.append(_row(label, _texts(run.scores, columns), kept, took))
    if len(runs) > 1:
        scores = [[metric_value(run.scores, metric) for run in runs] for metric in columns.values()]
        known = [[value for value in values if value is not None] for values in scores]
        rows += _mean_rows("mean", known, stacked=stacked)
    if before:
        rows += _mean_rows("gain", [_gains(runs, metric) for metric in columns.values()], "+", stacked=stacked)
    return Table(
        "", (*columns, "step", "time" if stacked else "seconds"), tuple(rows), align="p" + "r" * (len(columns) + 2)
    )


def _row(label: str, texts: Sequence[str], kept: str = "", took: str = "", emphasis: str = "") -> Row:
    return Row(label, tuple(map(Cell, (*texts, kept, took))), emphasis, below=emphasis == "spread")


def _mean_rows(label: str, values: Sequence[Sequence[float]], sign: str = "", *, stacked: bool) -> Iterator[Row]:
    """Yield means over seeds with their spreads, which are a row of their own where `stacked`."""
    means = [f"{statistics.mean(of_seeds):{sign}.2f}" if of_seeds else "" for of_seeds in values]
    spreads = [f"{statistics.stdev(of_seeds):.2f}" if len(of_seeds) > 1 else "" for of_seeds in values]
    if stacked:
        yield _row(label, means)
        if any(spreads):
            yield _row("± std", spreads, emphasis="spread")
    else:
        both = [f"{mean} ± {std}" if std else mean for mean, std in zip(means, spreads, strict=True)]
        yield _row(f"{label} ± std" if not sign else label, both)


def _texts(scores: Scores, columns: Mapping[str, str]) -> list[str]:
    return [_number(scores, metric) for metric in columns.values()]


def _number(scores: Scores, metric: str) -> str:
    value = metric_value(scores, metric)
    return "" if value is None else f"{value:.2f}"


def _gains(runs: Sequence[Result], metric: str) -> list[float]:
    """Return the difference of each run to the untrained encoder, where both were scored."""
    pairs = [(metric_value(run.scores, metric), metric_value(run.untrained, metric)) for run in runs]
    return [after - before for after, before in pairs if after is not None and before is not None]


def summary_line(result: Result, number: int, total: int, seconds_left: float = 0.0) -> str:
    """Return what came of one of several runs.

    Args:
        result: Of the run that has just ended.
        number: How many have ended.
        total: Of all.
        seconds_left: Until the last one ends, as far as can be told; 0 says nothing.
    """
    parts = [f"run {number} of {total}", f"{result.recipe} seed {result.seed}", *scores_in_words(result)]
    left = [f"about {duration(seconds_left)} left"] if seconds_left else []
    return " · ".join([*parts, duration(result.seconds), *left])


def finished_line(name: str, result: Result) -> str:
    """Return which run is finished and is not repeated, in Rich's markup."""
    run = f"run {str(result.run_id)[:8]} of {result.finished.astimezone():%Y-%m-%d %H:%M}"
    return f"{escape(name)} is finished: {run}. To train it again: --again"


def waiting_line(name: str, run: RecordedRun) -> str:
    """Return which run of another process is waited for, in Rich's markup."""
    return f"waiting for {escape(name)}: run {run.about.short} is {escape(run.host)}"


def scores_in_words(result: Result) -> list[str]:
    """Return "avg 61.20 (+3.10 over untrained)" of a run, or a text for each of two scores."""
    return [f"{one.name} {one.score:.2f}{_gain_in_words(one.gain)}" for one in headlines(result)]


def _gain_in_words(gain: float | None) -> str:
    if gain is None:
        return ""
    return f" ({abs(gain):.2f} below untrained)" if gain < 0 else f" (+{gain:.2f} over untrained)"


def below_untrained(runs: Sequence[Result]) -> list[str]:
    """Return a line for each run that ends below its encoder before training."""
    worse = [(run, one) for run in runs for one in headlines(run) if one.gain is not None and one.gain < 0]
    return [
        f"seed {run.seed} ends below its untrained encoder: {one.name} {one.score:.2f}, before training "
        f"{one.untrained:.2f}"
        for run, one in worse
    ]


_SENTENCES = '["A man is singing.", "Somebody sings."]'


def next_steps(results: Sequence[Result], settings: Sequence[str] = ()) -> list[str]:
    """Return where the model lies, how Python loads it, and the commands that follow; of several runs the best on dev.

    Args:
        results: Of the runs that came to their end.
        settings: The options that changed their recipes, so that other seeds are seeds of the same experiment.
    """
    best = max(results, key=_dev_score)
    run_id, folder = str(best.run_id), run_folders() / str(best.run_id) / "model"
    which = "" if len(results) == 1 else f" of the best on dev, {best.recipe} seed {best.seed}"
    python = "from cse_cli import load_model", f'model = load_model("{run_id[:8]}")', f"model.encode({_SENTENCES})"
    lines = [f"model{which}: {folder}", *(f"  {line}" for line in python)] if folder.is_dir() else []
    recipes = list(dict.fromkeys(result.recipe for result in results))
    commands = {f"cse evaluate {run_id[:8]}": "on the papers' test sets"} if folder.is_dir() else {}
    commands["cse leaderboard"] = "beside the papers' numbers"
    if len(recipes) > 1:
        commands[shlex.join(["cse", "compare", *recipes])] = "more than chance?"
    elif len(results) == 1:
        commands[shlex.join(["cse", "run", *recipes, *settings, "--seeds", "3"])] = "do other seeds agree?"
    width = max(map(len, commands))
    return [*lines, "next:", *(f"  {command:<{width}}  {why}" for command, why in commands.items())]


def _dev_score(result: Result) -> float:
    return result.curve.get(result.selected_step or 0, float("-inf"))


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
