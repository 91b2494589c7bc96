"""The signature is the only declaration: what is read from it, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError
from torch import Tensor

from registry.machinery.signature import RESERVED, Input, docstring, documented, forward_inputs, parameter_model
from registry.tokens import Encoded
from registry.types import (
    Augmenter,
    Component,
    Encoder,
    Loss,
    Negatives,
    Pooled,
    Reference,
    Sentences,
    Tune,
    ViewName,
)  # fmt: skip
from tests.support.errors import refuses

if TYPE_CHECKING:
    from decimal import Decimal


class Everything(Augmenter):
    """Take one parameter of each sort.

    More words, and an equation: a = b.

    Args:
        teacher: The encoder asked.
        rate: Share of tokens; a long
            description goes on here.
        view: A view.
        site: Where.
        names: Several.

    Shapes: none: Args end above.
    """

    def __init__(
        self,
        teacher: Encoder,
        view: ViewName,
        rate: Annotated[float, Field(gt=0, le=1), Tune(0.1, 0.9)] = 0.5,
        site: Literal["word", "layer"] = "layer",
        names: list[str] = [],  # noqa: B006
        other: Encoder = "target",  # type: ignore[assignment]
    ) -> None: ...


def model(cls):
    return parameter_model(cls)[0]


def test_documentation_defaults_and_references():
    assert documented(Everything) == {
        "teacher": "The encoder asked.",
        "rate": "Share of tokens; a long description goes on here.",
        "view": "A view.",
        "site": "Where.",
        "names": "Several.",
    }
    fields = model(Everything).model_fields
    assert list(fields) == ["teacher", "view", "rate", "site", "names", "other"]
    assert fields["rate"].description == "Share of tokens; a long description goes on here."
    assert [m for m in fields["rate"].metadata if isinstance(m, Tune)] == [Tune(0.1, 0.9)]
    assert model(Everything)(view="a").model_dump() == {
        "teacher": "online", "view": "a", "rate": 0.5, "site": "layer", "names": [], "other": "target",
    }  # fmt: skip
    assert parameter_model(Everything)[1] == (
        Reference("teacher", "encoder"), Reference("view", "view"), Reference("other", "encoder"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"view": "a", "rate": 0.0},
        {"view": "a", "rate": "0.5"},
        {"view": "a", "rate": float("inf")},
        {"view": "a", "site": "words"},
        {"view": "a", "names": "one"},
        {"view": "a", "unknown": 1},
        {"view": 3},
    ],
)
def test_values_are_checked_strictly(values):
    with pytest.raises(ValidationError):
        model(Everything)(**values)


def test_parameters_are_inherited_or_none_and_do_not_change():
    class Bare(Loss):
        """Be bare."""

    assert model(Bare).model_fields == {}

    class Child(Everything):
        """Be a child."""

    assert list(model(Child).model_fields) == list(model(Everything).model_fields)
    made = model(Everything)(view="a")
    with pytest.raises(ValidationError, match="frozen"):
        made.rate = 0.1


class Shared(Loss):
    """Declare what two losses have in common.

    Args:
        margin: Of both.
        scale: Of both, with defaults of their own.
    """

    def __init__(self, *, margin: Annotated[float, Field(ge=0)], scale: float = 1.0) -> None: ...


class Sharp(Shared):
    """Add a parameter, and change a default.

    Args:
        sharpness: Its own.
        scale: Said again.
    """

    def __init__(self, sharpness: int = 2, scale: float = 0.5, **shared: Any) -> None: ...


def test_keywords_stand_for_the_parameters_of_the_base_class():
    fields = model(Sharp).model_fields
    assert {name: (about.default, about.description) for name, about in fields.items() if name != "margin"} == {
        "sharpness": (2, "Its own."), "scale": (0.5, "Said again."),
    }  # fmt: skip
    assert list(fields) == ["margin", "sharpness", "scale"]  # what must be given comes first
    assert fields["margin"].description == "Of both."
    assert documented(Sharp) == {"margin": "Of both.", "sharpness": "Its own.", "scale": "Said again."}
    assert docstring(Sharp).endswith("Args:\n    sharpness: Its own.\n    scale: Said again.\n    margin: Of both.")
    with pytest.raises(ValidationError):
        model(Sharp)(margin=-1.0)


def no_default(self, rate=0.5): ...
def variadic_rates(self, *rates: float): ...
def keywords(self, **rates: float): ...
def positional(self, rate: float, /): ...
def hidden(self, rate: Decimal): ...
def no_type(self, rate: Tune(0, 1)[0]): ...
def inexpressible(self, weights: Tensor): ...
def maybe_encoder(self, teacher: Encoder | None = None): ...
def maybe_view(self, view: ViewName | None = None): ...
def many_views(self, over: list[ViewName]): ...
def pydantic_name(self, copy: bool = False): ...
def underscore(self, _rate: float = 0.5): ...


@pytest.mark.parametrize(
    ("init", "code", "value"),
    [
        (no_default, "no_annotation", "'rate'"),
        (variadic_rates, "variadic_parameter", "'*rates'"),
        (keywords, "variadic_parameter", "'*rates'"),
        (positional, "positional_parameter", "'rate'"),
        (hidden, "invalid_annotation", "'Decimal'"),
        (no_type, "invalid_annotation", "no_type"),
        (inexpressible, "invalid_annotation", "Tensor"),
        (maybe_encoder, "invalid_annotation", "Encoder"),
        (maybe_view, "invalid_annotation", "'view'"),
        (many_views, "invalid_annotation", "'over'"),
        (pydantic_name, "reserved_name", "'copy'"),
        (underscore, "invalid_annotation", "_rate"),
    ],
)
def test_signatures_that_no_recipe_can_express(init, code, value):
    with refuses(f"component.{code}", value, f"{__name__}.Made"):
        parameter_model(type("Made", (Component,), {"__init__": init}))


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_keys_of_recipes_are_reserved(name):
    space: dict[str, Any] = {"Component": Component}
    exec(f"class Clash(Component):\n    def __init__(self, {name}: float = 1.0): ...", space)
    with refuses("component.reserved_name", f"'{name}'"):
        parameter_model(space["Clash"])


def loss(forward):
    return type("Made", (Loss,), {"__doc__": "Be made.", "forward": forward})


def test_inputs_are_told_by_their_types():
    def forward(self, anchor: Sentences, hard: Sentences | None = None, queue: Negatives = None): ...

    assert forward_inputs(loss(forward)) == (
        Input("anchor", "sentences", False), Input("hard", "sentences", True), Input("queue", "negatives", False),
    )  # fmt: skip

    def of_encoded(self, anchor: Encoded, other: Encoded | None = None): ...

    assert forward_inputs(loss(of_encoded)) == (Input("anchor", "encoded", False), Input("other", "encoded", True))

    def of_several(self, anchor: Pooled, positives: tuple[Sentences, ...], hard: tuple[Pooled, ...] = ()): ...

    assert forward_inputs(loss(of_several)) == (
        Input("anchor", "pooled", False), Input("positives", "sentences", False, several=True),
        Input("hard", "pooled", True, several=True),
    )  # fmt: skip


def mixed(self, anchor: Sentences, other: Encoded): ...
def unannotated(self, anchor): ...
def plain_tensor(self, anchor: Tensor): ...
def other_mark(self, anchor: Annotated[Tensor, Tune(0, 1)]): ...
def either(self, anchor: Sentences | Encoded): ...
def no_view(self, queue: Negatives): ...
def nothing(self): ...
def variadic(self, *views: Sentences): ...
def needs_none(self, anchor: Sentences, hard: Sentences | None): ...


@pytest.mark.parametrize(
    ("forward", "code", "value"),
    [
        (mixed, "mixed_inputs", "Encoded"),
        (unannotated, "no_annotation", "'anchor'"),
        (plain_tensor, "invalid_annotation", "'anchor'"),
        (other_mark, "invalid_annotation", "'anchor'"),
        (either, "invalid_annotation", "'anchor'"),
        (no_view, "no_view", "Made"),
        (nothing, "no_view", "Made"),
        (variadic, "variadic_parameter", "'*views'"),
        (needs_none, "invalid_default", "'hard'"),
    ],
)
def test_inputs_without_a_source_are_rejected(forward, code, value):
    with refuses(f"component.{code}", value):
        forward_inputs(loss(forward))


def test_a_loss_of_weights_takes_no_view_and_one_without_forward_is_refused():
    class OfWeights(Loss):
        """Look at weights."""

        def __init__(self, encoder: Encoder) -> None: ...
        def forward(self) -> Tensor: ...  # type: ignore[override]

    assert forward_inputs(OfWeights) == ()

    class Empty(Loss):
        """Be empty."""

    with refuses("component.no_forward", "Empty"):
        forward_inputs(Empty)
