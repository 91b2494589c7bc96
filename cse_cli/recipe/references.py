"""The names in a recipe looked up: encoders, views, inputs of losses."""

from __future__ import annotations

from collections.abc import Iterable

from cse_cli.recipe.draft import Draft
from cse_cli.recipe.parts import Checked
from cse_cli.recipe.positions import Keys
from cse_cli.recipe.problems import Problems
from registry.errors import suggestion


def check_references(draft: Draft, problems: Problems) -> None:
    """Report every encoder, view and input that a recipe names and does not have, and views that nothing uses."""
    used = _check_losses(draft, problems)
    for name, view in draft.views.items():
        _known("encoder", view.encoder, draft.encoders, ("views", name, "encoder"), problems)
    for part in draft.parts():
        used |= _check_part(part, draft, problems)
    for name in draft.views:
        if name not in used and all(part.entry is not None for part in draft.parts()):
            message = "no loss, queue or augmenter uses this view: it would only cost time; remove it"
            problems.add(("views", name), message, at_key=True)


def complete_inputs(draft: Draft) -> dict[str, dict[str, str]]:
    """Return loss → input → view, with the views that inputs take by default."""
    complete: dict[str, dict[str, str]] = {}
    for name, loss in draft.losses.items():
        entry = draft.loss_parts[name].entry
        inputs = [i.name for i in entry.inputs if i.kind != "negatives"] if entry else []
        given = {i: loss.views.get(i, i) for i in inputs}
        complete[name] = {i: view for i, view in given.items() if view in draft.views}
    return complete


def _check_losses(draft: Draft, problems: Problems) -> set[str]:
    used: set[str] = set()
    for name, loss in draft.losses.items():
        entry = draft.loss_parts[name].entry
        if entry is None:
            used |= set(loss.views.values())
            continue
        inputs = {i.name: i for i in entry.inputs}
        for given in loss.views:
            if given not in inputs or inputs[given].kind == "negatives":
                _refuse_input(entry.name, given, inputs.keys(), ("losses", name, "views", given), problems)
        for i in entry.inputs:
            if i.kind == "negatives":
                continue
            view = loss.views.get(i.name, i.name)
            used.add(view)
            if view not in draft.views and (i.name in loss.views or not i.optional):
                _missing_view(name, entry.name, i.name, view, draft, problems)
    return used


def _refuse_input(loss: str, given: str, inputs: Iterable[str], keys: Keys, problems: Problems) -> None:
    if given in inputs:
        problems.add(keys, f"input '{given}' of loss '{loss}' is filled by the queue, not by a view", at_key=True)
        return
    known = f" It has: {', '.join(inputs)}."
    message = f"loss '{loss}' has no input '{given}'.{suggestion(given, inputs) or known}"
    problems.add(keys, message, at_key=True)


def _missing_view(name: str, loss: str, i: str, view: str, draft: Draft, problems: Problems) -> None:
    keys: Keys = ("losses", name, "views", i) if i in draft.losses[name].views else ("losses", name)
    hint = suggestion(view, draft.views) or f" Known: {', '.join(draft.views) or 'none'}."
    advice = "" if len(keys) > 2 else f' Declare [views.{view}], or map it: views = {{ {i} = "…" }}.'
    message = f"loss '{loss}' needs a view for '{i}': unknown view '{view}'.{hint}{advice}"
    problems.add(keys, message, at_key=len(keys) == 2)


def _check_part(part: Checked, draft: Draft, problems: Problems) -> set[str]:
    """Check the parameters of one component that name encoders and views; return the views."""
    views: set[str] = set()
    for reference in part.entry.references if part.entry else ():
        value = part.params.get(reference.parameter)
        if not isinstance(value, str):
            continue
        keys = (*part.keys, reference.parameter)
        known = _earlier(part.keys, reference.kind, draft)
        if reference.kind == "view":
            views.add(value)
        everything = draft.encoders if reference.kind == "encoder" else draft.views
        if value in everything and value not in known:
            section = f"{reference.kind}s"
            problems.add(keys, f"{reference.kind} '{value}' must stand earlier in the recipe than {part.keys[1]!r}: "
                         f"move [{section}.{value}] up")  # fmt: skip
        else:
            _known(reference.kind, value, known, keys, problems)
    return views


def _earlier(keys: Keys, kind: str, draft: Draft) -> list[str]:
    """Return the encoders or views a component may name: for one inside their own section, those before it."""
    everything = list(draft.encoders if kind == "encoder" else draft.views)
    own = (keys[0] == "encoders" and kind == "encoder") or (keys[0] == "views" and kind == "view")
    return everything[: everything.index(str(keys[1]))] if own else everything


def _known(kind: str, name: str, known: Iterable[str], keys: Keys, problems: Problems) -> None:
    known = list(known)
    if name not in known:
        hint = f"{suggestion(name, known)} Known: {', '.join(known) or 'none'}."
        problems.add(keys, f"unknown {kind} '{name}'.{hint}")
