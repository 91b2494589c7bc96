"""What a component of a file returns is checked after each hook: its kind, its place and what is wrong are named."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.poolings import POOLINGS
from tests.cse_cli.jobs.test_plugin_files import forget
from tests.support.command import refused
from tests.support.errors import refuses

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs", "undrawn")]

HEADER = """\
from dataclasses import replace

import torch

from registry import AUGMENTERS, EVALUATORS, HEADS, QUEUES
from registry.poolings import POOLINGS
from registry.types import Augmenter, Evaluator, Head


"""
AUGMENTER = '''\
@AUGMENTERS.register("own")
class Own(Augmenter):
    """An augmenter of a file."""

    def {hook}(self, {arguments}):
        return {value}
'''
HEAD = '''\
@HEADS.register("own")
class Own(Head):
    """A head of a file."""

    def fit(self, width, encoder):
        return width

    def forward(self, pooled, groups):
        return {value}
'''
POOLING = '''\
@POOLINGS.register("own")
def own(states, mask):
    """A pooling of a file."""
    return {value}
'''
EVALUATOR = '''\
@EVALUATORS.register("own")
class Own(Evaluator):
    """An evaluator of a file."""

    metric, metrics = "value", ("value",)

    def __call__(self, encode):
        return {value}
'''
ON = {
    "on_text": "samples, rng", "on_pieces": "pieces, rng", "on_tokens": "tokens, step",
    "on_embeddings": "embedded, view, step",
}  # fmt: skip
ANCHOR, POSITIVE = (f'[[views.{view}.augment]]\nname = "own"\n' for view in ("anchor", "positive"))
ON_HEADS, POOL, SCORE = "[encoders.online.heads.own]\n", 'pooling = "own"', "[evaluators.own]\n"
NARROW = "replace(embedded, vectors=embedded.vectors[..., :4])"
FLOATS = "returned a tensor of float32 and shape"
# Code, hook, its result, section of the recipe, and what the message contains.
WRONG = {
    "a row less": (AUGMENTER, "on_text", "samples[1:]", ANCHOR, "augmenter 'own': on_text returned 3 rows for 4"),
    "a row less in the positive": (AUGMENTER, "on_text", "samples[1:]", POSITIVE, "on_text returned 3 rows for 4"),
    "strings": (AUGMENTER, "on_text", "[one.text for one in samples]", POSITIVE, "a list that contains str"),
    "sub-words": (AUGMENTER, "on_pieces", "pieces[:2]", ANCHOR, "on_pieces returned 2 rows for 4"),
    "tokens as a tensor": (AUGMENTER, "on_tokens", "tokens.ids", ANCHOR, "on_tokens returned Tensor"),
    "vectors of another width": (AUGMENTER, "on_embeddings", NARROW, ANCHOR, f"on_embeddings {FLOATS}"),
    "a head with fewer rows": (HEAD, "", "pooled[:1]", ON_HEADS, f"head 'own': forward {FLOATS} (1, "),
    "a head without a tensor": (HEAD, "", "pooled.tolist()", ON_HEADS, "head 'own': forward returned list"),
    "a pooling that keeps the tokens": (POOLING, "", "states[0]", POOL, f"pooling 'own' {FLOATS} (8, "),
    "an undeclared metric": (EVALUATOR, "", '{"value": 1.0, "b": 2.0}', SCORE, "returned the undeclared metric 'b'"),
    "a missing metric": (EVALUATOR, "", "{}", SCORE, "evaluator 'own': call returned no 'value'"),
    "not a number": (EVALUATOR, "", '{"value": float("nan")}', SCORE, "'own': call returned nan for 'value'"),
}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(POOLINGS, "_entries", dict(POOLINGS._entries))
    forget()
    yield
    forget()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_names_the_component_and_its_line(name: str, file: str, folder: Path) -> None:
    template, hook, value, section, message = WRONG[name]
    code = template.replace("{value}", value).replace("{hook}", hook).replace("{arguments}", ON.get(hook, ""))
    (folder / "own_file.py").write_text(HEADER + code)
    recipe, text = folder / file, (folder / file).read_text()
    recipe.write_text(re.sub('pooling = "\\w+"', POOL, text) if section == POOL else f"{text}\n{section}")
    with refuses("part.invalid_result", message, "own_file.py:") as caught:
        options = () if template == EVALUATOR else ("--dry-run",)
        raise refused("run", file, "--plugin", "own_file.py", "--device", "cpu", *options)
    assert caught.value.exit_code == 2
