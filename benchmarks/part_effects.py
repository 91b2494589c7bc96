"""Effect of each component in a grid, seed by seed.

    python -m benchmarks.part_effects STUDY PATH ...

A path such as losses.info_nce.name or queue.name selects a place of the recipe. Each component at a place is compared
with that of the study's first cell. Every combination is a cell. The effect of a seed is the mean over the combinations
of the other places, so the sample consists of seeds, not cells. p is from the paired t test for a planned number of
seeds. p and interval are corrected for all effects by Holm's procedure. Requires the finished runs of the study and
prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from statistics import fmean

from cse_cli.core.formatting import interval, p_value, signed
from cse_cli.core.stats import Paired, compare_paired, judge_together
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.study import plan_study
from cse_cli.runs.scores import metric_value

Scores = Mapping[tuple[str, ...], Mapping[int, float]]
"""Component at each place → seed → score. The others are compared with the first."""
NONE = "none"


def effects(scores: Scores) -> dict[tuple[int, str], Paired]:
    """Return (place, component) → effect over the seeds that all cells have, with p-values corrected together."""
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in scores.values())))
    first, found = next(iter(scores)), {}
    for place, own in enumerate(first):
        for part in dict.fromkeys(cell[place] for cell in scores if cell[place] != own):
            pairs = [
                (by_seed, scores[*cell[:place], part, *cell[place + 1 :]])
                for cell, by_seed in scores.items()
                if cell[place] == own
            ]
            before, after = ([fmean(pair[side][seed] for pair in pairs) for seed in seeds] for side in (0, 1))
            found[place, part] = compare_paired(seeds, before, after, "planned")
    corrected = judge_together([[effect.p] for effect in found.values()])
    return {
        key: effect if one is None else effect.judged("planned", one.p, one.level)
        for (key, effect), (one,) in zip(found.items(), corrected, strict=True)
    }


def read(name: str, paths: Sequence[str]) -> dict[tuple[str, ...], dict[int, float]]:
    """Return the scores of a study's finished runs."""
    plan = plan_study(name, RunRequest())
    study, done = plan.study, plan.results()
    found: dict[tuple[str, ...], dict[int, float]] = {}
    for cell in plan.cells:
        parts = tuple(str(cell.load(0).recipe.setting(path) or NONE) for path in paths)
        named = ((run, study.score or run.metric_for_best_model or "") for run in done[cell.hash])
        values = {run.seed: metric_value(run.scores, name) for run, name in named}
        found[parts] = {seed: value for seed, value in values.items() if value is not None}
    return found


def main() -> None:
    """Print the effects of a study's components."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study")
    parser.add_argument("paths", nargs="+")
    options = parser.parse_args()
    scores = read(options.study, options.paths)
    first = next(iter(scores))
    print("| component | instead of | seeds | effect | 95 % | p |\n| --- | --- | ---: | ---: | --- | ---: |")
    for (place, part), effect in effects(scores).items():
        reach = "" if effect.low is None else interval(effect.low, effect.high)
        p = p_value(effect.p_adjusted)
        print(f"| {part} | {first[place]} | {len(effect.seeds)} | {signed(effect.difference)} | {reach} | {p} |")


if __name__ == "__main__":
    main()
