"""`cse reproduce`: run a recipe over several seeds, and judge the reported number from their scores."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from cse_cli.analysis.reproduced import doubts, find_target, judge, verdict_text
from cse_cli.analysis.score_table import measure
from cse_cli.core.console import Screen, stdout_console, write_json
from cse_cli.core.formatting import counted
from cse_cli.core.results import Result
from cse_cli.core.stats import MOST_SEEDS
from cse_cli.jobs.launch import run_all
from cse_cli.jobs.request import RunRequest, choose_placement
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.runs.record import MODEL, folder_of
from registry.errors import CseError
from registry.resources.models import weights_sha256

PUBLISHED = Path(__file__).parent / "portable.toml"
"""Version of torch → recipe → seed → SHA-256 of the weights of a portable run, by `benchmarks.portable`."""


def run_reproduction(what: str, request: RunRequest) -> int:
    """Run what a recipe or a reported row names, print the verdict, and return the exit code."""
    target = find_target(what, [str(one) for one in request.overrides], request.unset)
    loaded, claim, trained = target.loaded, target.claim, target.loaded.recipe.train.steps != 0
    recipe = str(loaded.path) if what.endswith(".toml") else loaded.name
    request = replace(request, recipes=[recipe], seeds=request.seeds or ("3" if trained else "1"))
    jobs, screen = request.jobs(), Screen(quiet=request.quiet)
    reported = f"{claim.heading} {claim.value:.{claim.digits}f}"
    runs = f"{counted(len(jobs), 'run')} of {shlex.quote(loaded.name)}"
    screen.advise([f"reproducing {target.name}: {reported}, by {runs}"])
    ends = run_all(jobs, choose_placement(jobs, request), request)
    scores = {end.seed: target.value(end) for end in ends if isinstance(end, Result)}
    errors = [end for end in ends if isinstance(end, CseError)]
    if not scores:
        raise errors[0]

    verdict = judge(measure(list(scores.values())), claim, trained=trained)
    points = list(doubts(loaded)) if verdict.outcome in ("lower", "higher") else []
    bits = list(_bits(loaded, [end for end in ends if isinstance(end, Result)]))
    if request.as_json:
        document = {
            "schema_version": 2, "recipe": loaded.name, "changes": loaded.changes, "row": target.name,
            "source": target.source, "claim": claim.model_dump(), "scores": scores, "verdict": verdict.model_dump(),
            "notes": target.notes, "doubts": [{**point.model_dump(), "options": tried} for point, tried in points],
            "bits": bits,
        }  # fmt: skip
        write_json(document)
    else:
        lines = [Text(f"{target.name} · {loaded.name}", "bold"), Text(verdict_text(verdict, claim))]
        lines += [Text(f"The recipe was changed: {', '.join(loaded.changes)}.")] if loaded.changes else []
        lines += [Text(f"Doubt about the reported row: {note}") for note in target.notes]
        for one in bits:
            said = f"other bits than published, {one['published']}"
            if one["published"] in (None, one["sha256"]):
                said = "the same bits as published" if one["published"] else f"none published for torch {one['torch']}"
            lines.append(Text(f"Weights with seed {one['seed']}: {one['sha256']}, {said}"))
        lines += [Text("\nDoubtful points of the method, and options that choose otherwise:")] if points else []
        with stdout_console(80) as console:
            for line in lines:
                console.print(line)
            for point, tried in points:
                console.print(Text(f"{point.name}  {point.about} (docs/methods/{point.page}.md)"))
                for options in tried:
                    console.print(Text(f"  {options}"), soft_wrap=True)  # you can copy a command that does not wrap
    if 0 < verdict.more_seeds <= MOST_SEEDS:
        unused = [seed for seed in range(len(scores) + 2 * verdict.more_seeds) if seed not in scores]
        planned = [*scores, *unused[: verdict.more_seeds]]
        option = str(len(planned)) if planned == list(range(len(planned))) else ",".join(map(str, planned))
        screen.advise(["next:", f"  {shlex.join(['cse', 'reproduce', what, *request.settings(), '--seeds', option])}"])
    return errors[0].exit_code if errors else 0


def _bits(loaded: LoadedRecipe, results: Iterable[Result]) -> Iterator[dict[str, Any]]:
    """Yield seed, torch, SHA-256 of the weights and the published one of each portable run of a recipe."""
    unchanged = loaded.changes == ("train.portable=true",)
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8")) if unchanged else {}
    for result in results:
        if result.is_portable:
            torch = result.versions.torch.partition("+")[0]
            known = published.get(torch, {}).get(loaded.name, {}).get(str(result.seed))
            digest = weights_sha256(folder_of(result.run_id or "") / MODEL)
            yield {"seed": result.seed, "torch": torch, "sha256": digest, "published": known}
