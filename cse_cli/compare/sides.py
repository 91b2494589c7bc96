"""What is compared: the finished runs that an argument of `cse compare` means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase

from cse_cli.recipe.find import all_recipes, name_of
from cse_cli.recipe.load import load
from cse_cli.results import Result
from cse_cli.tracking import reader
from registry.errors import CseError, UnknownNameError, suggestion


@dataclass(frozen=True)
class Side:
    """One of those compared.

    Args:
        letter: What tables and sentences call it.
        name: Recipe, or run.
        runs: Seed → its run that finished last.
        notes: What a reader must know of the choice.
    """

    letter: str
    name: str
    runs: Mapping[int, Result] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def latest(self) -> Result:
        """The run that finished last."""
        return max(self.runs.values(), key=lambda result: result.finished)


def find_sides(asked: Sequence[str], results: Sequence[Result]) -> list[Side]:
    """Return what is compared, in the order asked for.

    Args:
        asked: Beginnings of run ids, names or paths of recipes, or `recipe@seed`.
        results: All finished runs.

    Raises:
        CseError: Fewer than two, the same run twice, or nothing finished of one of them.
        UnknownNameError: One is neither a recipe nor a run.
    """
    if not 2 <= len(asked) <= len(ascii_uppercase):
        given = "nothing" if not asked else "one" if len(asked) == 1 else str(len(asked))
        raise CseError(
            f"cse compare takes two to {len(ascii_uppercase)} runs or recipes; {given} is given",
            "name what to compare with: `cse compare mini/simcse_en mini/ifcl_en`",
        )
    sides = [_side(letter, one, results) for letter, one in zip(ascii_uppercase, asked, strict=False)]
    for place, side in enumerate(sides):
        for other in sides[:place]:
            if same := sorted(_ids(side) & _ids(other)):
                raise CseError(
                    f"{other.name} and {side.name} share run {same[0][:8]}: a run cannot be compared with itself",
                    "`cse runs ls` shows the others",
                )
    return sides


def _ids(side: Side) -> set[str]:
    return {result.run_id for result in side.runs.values() if result.run_id}


def _side(letter: str, asked: str, results: Sequence[Result]) -> Side:
    recipe, at, seed = asked.rpartition("@")
    if at and seed.isdigit():
        side = _of_recipe(letter, recipe, results)
        if int(seed) not in side.runs:
            raise CseError(
                f"no finished run of {side.name} with seed {seed}; seeds that finished: {_listed(side.runs)}",
                f"`cse run {recipe} --seed {seed}` makes it",
            )
        return Side(letter, f"{side.name}@{int(seed)}", {int(seed): side.runs[int(seed)]}, side.notes)
    if _is_recipe(asked, results):
        return _of_recipe(letter, asked, results)
    return _of_run(letter, asked, results)


def _is_recipe(asked: str, results: Sequence[Result]) -> bool:
    return asked.endswith(".toml") or asked in all_recipes() or any(_name(r.recipe) == asked for r in results)


def _name(asked: str) -> str:
    return name_of(Path(asked)) if asked.endswith(".toml") else asked


def _of_recipe(letter: str, asked: str, results: Sequence[Result]) -> Side:
    """Return the runs of the recipe as it is today, else of what it was when it last ran."""
    name = _name(asked)
    named = [result for result in results if _name(result.recipe) == name]
    try:
        today = load(asked).recipe.hash()
    except CseError:
        if not named:
            raise
        today = None
    runs = [result for result in results if result.recipe_hash == today]
    notes: tuple[str, ...] = ()
    if not runs:
        if not named:
            raise CseError(f"no finished run of recipe '{asked}'", f"`cse run {asked} --seeds 5` makes some")
        last = max(named, key=lambda result: result.finished)
        runs = [result for result in named if result.recipe_hash == last.recipe_hash]
        why = "its recipe is found no more" if today is None else "no run of today's recipe has finished"
        notes = (f"{why}: those of {last.finished:%Y-%m-%d} are taken, hash {last.recipe_hash[:8]}",)
    return Side(letter, name, _by_seed(runs), notes)


def _by_seed(runs: Sequence[Result]) -> dict[int, Result]:
    latest = {result.seed: result for result in sorted(runs, key=lambda result: result.finished)}
    return dict(sorted(latest.items()))


def _of_run(letter: str, asked: str, results: Sequence[Result]) -> Side:
    known = reader.list_names()
    if not any(run.run_id.startswith(asked.lower()) or run.name == asked for run in known):
        near = suggestion(asked, [*all_recipes(), *{_name(r.recipe) for r in results}, *(r.run_id[:8] for r in known)])
        raise UnknownNameError(
            f"'{asked}' is neither a recipe nor a run.{near}",
            "`cse runs ls` and `cse list recipes` show what there is; the path of a recipe ends in .toml",
        )
    run_id = reader.find_run(asked)
    found = [result for result in results if result.run_id == run_id]
    if not found:
        status = next(run.status for run in known if run.run_id == run_id)
        raise CseError(f"run {run_id[:8]} has no scores to compare: {status}", "`cse runs ls` shows finished ones")
    return Side(letter, f"{run_id[:8]} ({_name(found[0].recipe)})", {found[0].seed: found[0]})


def _listed(seeds: Mapping[int, Result]) -> str:
    return ", ".join(map(str, seeds))
