"""Identity of a recipe's experiment on this machine: digests of settings, text, weights and code.

Nothing is built or downloaded. A file is read again only if it has changed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, Field

from cse_cli.core.identity import Difference, Identity
from cse_cli.data.requirements import availability
from cse_cli.data.sources import text_fingerprint
from cse_cli.recipe.requirements import EVALUATED, HUB, Requirement, of_part, of_training, requirements
from cse_cli.recipe.schema import Recipe, train_entries
from registry import AUGMENTERS, EVALUATORS
from registry.errors import MissingError
from registry.machinery.code import code_version
from registry.machinery.core import POOLINGS, Pooling
from registry.resources import catalog, hub
from registry.resources.hub_sets import HubSet
from registry.resources.models import settings_sha256, sha256_of, weights_sha256
from registry.types import BUILT_IN

ENGINE = "1"
"""Version of the code that trains and scores, apart from the components, raised when its numbers change."""

CONFIG = ".config"
"""End of the place of a model's configuration and vocabulary, whose digest is separate from that of the weights."""


class Known(BaseModel):
    """Identity while a text, a data set or a model is not on this machine. Unknown parts have the value None.

    Weights are digests by place in the recipe, code is digests by component.
    """

    model_config = ConfigDict(frozen=True)

    settings: str
    text: str | None = ""
    weights: dict[str, str | None] = Field(default_factory=dict)
    code: dict[str, str] = Field(default_factory=dict)
    scored: dict[str, str | None] = Field(default_factory=dict)

    @property
    def unknown(self) -> list[str]:
        """Unknown parts: "text", places in the recipe, or evaluators."""
        named = {**self.weights, **self.scored}
        return [*(["text"] if self.text is None else []), *(key for key, value in named.items() if not value)]

    def differences(self, identity: Identity) -> list[Difference]:
        """Return the differences of an identity from the known parts."""
        weights = {place: digest or identity.weights.get(place, "") for place, digest in self.weights.items()}
        text = identity.text if self.text is None else self.text
        own = Identity(settings=self.settings, text=text, weights=weights, code=self.code, scored=identity.scored)
        if None not in self.scored.values():
            own = own.model_copy(update={"scored": self.scored})
        return own.differences(identity)


def identify(recipe: Recipe, text: str | None = None) -> Identity:
    """Return the identity of a recipe's experiment, whose requirements are all on this machine."""
    known = identify_known(recipe, text)
    if known.unknown:
        raise MissingError(
            f"cannot identify the experiment, because parts are not on this machine: {', '.join(known.unknown)}",
            "download them: cse data download --for RECIPE",
            code="data.missing_requirement",
        )
    return Identity.model_validate(known.model_dump())


def identify_known(recipe: Recipe, text: str | None = None) -> Known:
    """Return the known parts of the identity, with None for a text or model that is not on this machine.

    `text` is the `Text.fingerprint` of the training text if it is open.
    """
    wiring = recipe.wiring()
    entries = [placed.entry for placed in wiring.parts() if placed.registry is not EVALUATORS]
    entries += train_entries(recipe.train)
    code = {f"{entry.kind}.{entry.name}": code_version(entry.cls) for entry in entries}
    return Known(
        settings=recipe.hash(),
        text=_text(wiring) if text is None else text,
        weights=dict(_weights(wiring)),
        code=code | {f"poolings.{one.name}": code_version(one.function) for one in plugin_poolings(wiring)},
        scored=dict(_scored(wiring)),
    )


def plugin_poolings(recipe: Recipe) -> list[Pooling]:
    """Return the poolings of plug-ins that the recipe names."""
    keys = ("pooling", "eval_pooling")
    named = {str(part.params[key]) for part in recipe.encoders.values() for key in keys if part.params.get(key)}
    return [POOLINGS[name] for name in sorted(named - BUILT_IN) if name in POOLINGS.names()]


def columns_read(recipe: Recipe) -> set[str]:
    """Return the columns of the training text that views and their augmenters read."""
    augmenters = [part for view in recipe.views.values() for part in view.augment]
    second = (part.params.get("column", AUGMENTERS[part.name].cls.column) for part in augmenters)
    return {view.column for view in recipe.views.values()} | {name for name in second if isinstance(name, str)}


def _text(recipe: Recipe) -> str | None:
    """Return the fingerprint of the training text, or None if it is not on this machine or a column is not made."""
    wanted = list(of_training(recipe))
    if not wanted:
        return ""
    wanted += [one for one in requirements(recipe) if one.wanted_by[0].startswith("data.columns.")]
    if any(availability(one).state != "here" for one in wanted):
        return None
    return text_fingerprint(recipe.data, columns_read(recipe))


def _scored(recipe: Recipe) -> Iterator[tuple[str, str | None]]:
    """Yield name and digest of the data of every evaluator, or the place of one whose data is not on this machine."""
    for placed in recipe.parts():
        if placed.registry is not EVALUATORS:
            continue
        wanted = of_part(placed.place, placed.entry, placed.part.params)
        if any(availability(one).state != "here" for one in wanted if one.name != EVALUATED):
            yield placed.place, None
        else:
            yield from placed.entry.build(placed.part.params).fingerprints().items()


def _weights(recipe: Recipe) -> Iterator[tuple[str, str | None]]:
    """Yield place and digest of every model, file and data set, except the training text.

    Files and data sets of evaluators are in `Known.scored`.
    """
    for placed in recipe.parts():
        params = placed.part.params
        wanted = [one for one in of_part(placed.place, placed.entry, params) if one.name != EVALUATED]
        places = Counter(one.wanted_by[0] for one in wanted)
        for number, one in enumerate(wanted):
            if placed.registry is EVALUATORS and one.kind != "model":
                continue
            named = one.wanted_by[0].removesuffix(".model")
            named += f"[{number}]" if places[one.wanted_by[0]] > 1 else ""
            yield from _digests(named, one, random=bool(params.get("random_weights")))


def _digests(place: str, wanted: Requirement, *, random: bool) -> Iterator[tuple[str, str | None]]:
    found = availability(wanted)
    here = found.paths if found.state == "here" else ()
    if wanted.kind == "model":
        if not random:
            yield place, weights_sha256(here[0]) if here else None
        yield f"{place}{CONFIG}", settings_sha256(here[0]) if here else None
    elif wanted.kind == "file":
        each = [sha256_of(file) for file in here]
        whole = each[0] if len(each) == 1 else hashlib.sha256("".join(each).encode()).hexdigest()
        yield place, whole if here else None
    elif found.state != "here":
        yield place, None
    elif wanted.name.startswith(HUB):
        yield place, hub.commit_of(HubSet.parse(wanted.name).repository)
    else:
        yield place, catalog.fingerprint(wanted.name, wanted.split)
