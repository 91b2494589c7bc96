"""The document of a reproduction: row, scores, verdict and environment, without private paths. You can share it."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from cse_cli._version import __version__
from cse_cli.analysis.rerun import environment_facts
from cse_cli.core.checksums import Checked
from cse_cli.core.results import Result
from cse_cli.recipe.files import bare_name, shipped_name
from cse_cli.reproduce.doubts import Doubt, doubts
from cse_cli.reproduce.target import Reference, Target
from cse_cli.reproduce.verdict import Verdict, judge
from cse_cli.runs.record import ENVIRONMENT, folder_of
from registry.errors import CseError
from registry.papers import badge_of
from registry.validation import describe

MOST_BYTES = 2**22
"""Largest size of a shared file. A thousand seeds need a quarter of it."""
_DIRECTORY = re.compile(r"(?<![\w.])(?:~|[A-Za-z]:)?(?:[/\\][^/\\\s'\"\],]+)+[/\\](?=[^/\\\s'\"\],])")
"""Pattern of the directory in an absolute path."""


class SeedScores(BaseModel, frozen=True):
    """Scores of one seed.

    Args:
        scores: Heading of the row → score.
        selected_step: Step of the scored state. None without a selection.
        note: Early end of the training, or empty.
    """

    seed: int = Field(ge=0)
    scores: dict[str, float]
    selected_step: int | None = None
    note: str = ""


class Reproduction(Checked, frozen=True):
    """A reproduction with everything that its verdict follows from.

    Args:
        recipe: Name of the recipe.
        settings: `Recipe.hash()` of the recipe with the changes.
        changes: Settings that `--set` and `--unset` changed.
        command: Command that repeats it.
        reference: Reported row.
        trained: Whether the recipe trains.
        seeds: Scores of each seed.
        verdict: Verdict, which follows from the fields above.
        doubts: Doubtful points of the row's method.
        checks: Badge of the recipe in one line. Empty for a changed recipe.
        environment: Machine, versions and times.
        cse: Version of `cse`.
    """

    format: Literal["cse reproduction"] = "cse reproduction"
    schema_version: Literal[1] = 1
    recipe: str
    title: str
    settings: str
    changes: tuple[str, ...] = ()
    command: str
    reference: Reference
    trained: bool
    seeds: tuple[SeedScores, ...] = Field(min_length=1)
    verdict: Verdict
    doubts: tuple[Doubt, ...] = ()
    checks: str = ""
    environment: dict[str, str] = Field(default_factory=dict)
    cse: str

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        numbers = [seed.seed for seed in self.seeds]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"a seed appears twice: {numbers}")
        judged, known = self.reference.judged, self.reference.scores.keys()
        for seed in self.seeds:
            if judged not in seed.scores or not seed.scores.keys() <= known:
                raise ValueError(f"seed {seed.seed} needs scores of '{judged}' and of reported columns only")
            if not all(map(math.isfinite, seed.scores.values())):
                raise ValueError(f"seed {seed.seed} has a score that is not a finite number")
        found = _judge(self.reference, self.seeds, trained=self.trained)
        if not found.is_same(self.verdict):
            raise ValueError(
                f"verdict '{self.verdict.outcome}' of {self.verdict.mean:.2f} does not follow from its scores. These "
                f"give '{found.outcome}' of {found.mean:.2f}"
            )
        return self


def _judge(reference: Reference, seeds: Sequence[SeedScores], *, trained: bool) -> Verdict:
    values = [seed.scores[reference.judged] for seed in seeds]
    return judge(values, reference.claim, reference.others, tolerance=reference.tolerance, trained=trained)


def make_reproduction(target: Target, results: Sequence[Result], options: Sequence[str]) -> Reproduction:
    """Return the document of finished seeds.

    Args:
        target: Recipe and row.
        results: Results of the seeds.
        options: Options of the command that change the recipe, and its seeds.
    """
    loaded, reference = target.loaded, target.reference
    seeds = []
    for result in results:
        scores = target.values(result)
        if reference.judged not in scores:
            raise CseError(
                f"run {str(result.run_id)[:8]} has no score for '{reference.judged}'",
                f"run it again: cse run {result.recipe} --again",
                code="reproduce.no_score",
            )
        note = "" if result.early_stop is None else result.early_stop.text
        seeds.append(SeedScores(seed=result.seed, scores=scores, selected_step=result.selected_step, note=note))
    argument = target.argument if not target.argument.endswith(".toml") else bare_name(loaded.path) or loaded.path.name
    shipped = shipped_name(loaded.path)
    return Reproduction(
        recipe=loaded.name,
        title=loaded.recipe.title,
        settings=loaded.recipe.hash(),
        changes=tuple(map(without_directories, loaded.changes)),
        command=without_directories(shlex.join(["cse", "reproduce", argument, *options])),
        reference=reference,
        trained=target.trained,
        seeds=tuple(seeds),
        verdict=_judge(reference, seeds, trained=target.trained),
        doubts=tuple(doubts(loaded)),
        checks="" if loaded.changes or shipped is None else badge_of(shipped).line,
        environment=environment_facts(results, _environment(results[0])),
        cse=__version__,
    )


def without_directories(text: str) -> str:
    """Return a text with the file names of absolute paths instead of the paths, which are private."""
    return _DIRECTORY.sub("", text)


def _environment(result: Result) -> dict[str, Any]:
    """Return the machine that a run recorded, or nothing if the record is damaged."""
    with suppress(OSError, ValueError):
        return dict(json.loads((folder_of(str(result.run_id)) / ENVIRONMENT).read_text(encoding="utf-8")))
    return {}


def read_reproduction(file: Path) -> Reproduction:
    """Return the document in a file. Its verdict is computed again from its scores.

    Raises:
        CseError: If the file cannot be read, is not such a document, is damaged, or contradicts itself.
    """
    try:
        if file.is_file() and file.stat().st_size > MOST_BYTES:
            raise ValueError(f"larger than {MOST_BYTES:,} bytes")
        return Reproduction.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except ValidationError as error:
        reason = f"is not a valid reproduction: {describe(error)}"
    except (ValueError, RecursionError) as error:
        reason = f"is not a reproduction: {error}"
    raise CseError(
        f"--from '{file}' {reason}",
        "use a file from `cse reproduce RECIPE --output FILE.json`",
        code="reproduce.bad_file",
    )
