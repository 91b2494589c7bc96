"""Differences between compared methods that are not in their recipes, and remarks on the choice of their runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cse_cli.analysis.runs import Change, Method
from cse_cli.core.identity import SHORT, Difference, Identity
from cse_cli.core.plans import plan_of
from cse_cli.core.results import Result

ENVIRONMENT: Mapping[str, Callable[[Result], str]] = {
    "cse": lambda run: run.versions.cse,
    "python": lambda run: run.versions.python,
    "torch": lambda run: run.versions.torch,
    "transformers": lambda run: run.versions.transformers,
    "engine": lambda run: run.versions.engine[:SHORT],
    "device": lambda run: run.device,
    "precision": lambda run: run.precision,
}
"""Name → value of what can differ between runs of one experiment. The engine is the code of trainer and evaluators."""


def mixed_environments(runs: Sequence[Result]) -> list[str]:
    """Return a remark on versions, device and precision that differ between runs of one row."""
    values = {name: dict.fromkeys(value_of(run) for run in runs) for name, value_of in ENVIRONMENT.items()}
    named = [f"{name} {' / '.join(of)}" for name, of in values.items() if len(of) > 1]
    return [f"not the same for all seeds: {'; '.join(named)}"] if named else []


def find_circumstances(methods: Sequence[Method], changes: Sequence[Change]) -> Iterable[Change]:
    """Yield the differences that are not in the recipes: text, weights, code, device, precision, versions."""
    identities = [method.latest.identity for method in methods]
    parts: dict[tuple[str, str], Difference] = {}
    for identity in identities[1:]:
        parts |= {(one.part, one.name): one for one in identities[0].differences(identity) if one.part != "settings"}
    changed = {change.key for change in changes}
    for part, name in parts:
        values = tuple(_digest(identity, part, name) for identity in identities)
        # A component that only one recipe has, or another model in a recipe, is a change of the recipe.
        if all(values) and not (part == "weights" and changed & {name, f"{name}.model"}):
            yield Change(key=f"{part} of {name}" if name else part, values=values)
    for name, value_of in ENVIRONMENT.items():
        values = tuple(", ".join(sorted({value_of(run) for run in method.runs.values()})) for method in methods)
        if len(set(values)) > 1:
            yield Change(key=name, values=values)


def _digest(identity: Identity, part: str, name: str) -> str:
    """Return the short digest of a part of an experiment. Empty if the experiment has none."""
    digest = getattr(identity, part)
    return str(digest.get(name, "") if name else digest)[:SHORT]


def find_notes(methods: Sequence[Method], unreadable: Collection[str]) -> Iterable[str]:
    """Yield the remarks on each method. `unreadable` are the letters of those whose recipe cannot be read."""
    for method in methods:
        yield from (f"{method.letter}: {note}" for note in (*method.notes, *_notes_on_runs(method)))
        if method.letter in unreadable:
            yield f"{method.letter}: the recorded recipe cannot be read"
    if selected := sorted(
        {run.metric_for_best_model for method in methods for run in method.runs.values() if run.metric_for_best_model}
    ):
        yield f"{', '.join(selected)} selected the states: optimistic, and not tested"


def _notes_on_runs(method: Method) -> Iterable[str]:
    plan, latest = plan_of(list(method.runs.values())), method.latest
    if plan.mode == "incomplete" and len(method.runs) > 1:
        yield f"{plan.text}: `cse run {latest.recipe} --seeds {plan.option}`"
    experiments = {run.experiment: run.identity for run in method.runs.values()}
    if len(experiments) > 1:
        others = [one for key, one in experiments.items() if key != latest.experiment]
        names = dict.fromkeys(str(one) for other in others for one in other.differences(latest.identity))
        yield f"WARNING: its seeds belong to {len(experiments)} experiments, which differ in {', '.join(names)}"
    if any(run.test_selected for run in method.runs.values()):
        yield "a test split selected the states, so the scores are optimistic"
