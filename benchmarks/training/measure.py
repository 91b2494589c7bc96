"""Measurements of the command. Each returns a JSON document."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from benchmarks.training import agreement, memory, others, shares
from benchmarks.training.cse_steps import CseSteps, sentences
from benchmarks.training.material import Setting
from benchmarks.training.timing import alternate
from cse_cli.data.batches import Batches

METHODS = ("simcse_en", "focal_infonce_en", "ifcl_en", "mocose_en", "conisi_s_en")


def compare(setting: Setting, steps: int, peers: Sequence[str]) -> dict[str, Any]:
    """Return the losses of all implementations and whether they agree."""
    found = agreement.compare(setting, steps, peers)
    return {
        "losses": found.losses,
        "differences": found.differences,
        "limit": agreement.LIMIT,
        "holds": found.holds,
    }


def peers(
    setting: Setting, names: Sequence[str], rounds: int, steps: int, warm: int, also: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the seconds of a step of `cse` and its peers on one text, and of `cse` with each setting in `also`."""
    ways = agreement.ways(setting, peers=names)
    ways += [
        CseSteps(replace(setting, options=(*setting.options, *some.split())), name=f"cse, {some}") for some in also
    ]
    own = ways[0]
    assert isinstance(own, CseSteps)
    timed = alternate(ways, rounds, steps, warm, own.device)
    return {
        "title": _title(setting),
        "limit": shares.limit(setting.precision) if own.device.type == "cpu" else None,
        "batch": setting.batch,
        "tokens": tokens(setting, own.batches, rounds * (steps + warm)),
        "rounds": rounds,
        "steps": steps,
        "warm": warm,
        "ways": [one.table() for one in timed],
    }


def shares_of(setting: Setting) -> dict[str, Any]:
    """Return the shares of a step of `cse` by kind of operation."""
    return {"title": _title(setting), "shares": shares.shares(setting, 3)}


def methods(setting: Setting, names: Sequence[str], rounds: int, steps: int, warm: int) -> dict[str, Any]:
    """Return the seconds of a step with the methods of several recipes. The others are compared with the first."""
    ways = [CseSteps(setting, name) for name in names]
    timed = alternate(ways, rounds, steps, warm, ways[0].device)
    return {"title": f"Steps of methods, {_title(setting)}", "ways": [one.table() for one in timed]}


def variants(setting: Setting, options: Sequence[str], rounds: int, steps: int, warm: int) -> dict[str, Any]:
    """Return the seconds of a SimCSE step by default and with each of several settings."""
    ways = [CseSteps(setting, "simcse_en", name="default")]
    for some in options:
        changed = replace(setting, options=(*setting.options, *some.split()))
        ways.append(CseSteps(changed, "simcse_en", name=some))
    timed = alternate(ways, rounds, steps, warm, ways[0].device)
    return {"title": f"Settings of the step, {_title(setting)}", "ways": [one.table() for one in timed]}


def memories(setting: Setting) -> dict[str, Any]:
    """Return the peak memory of every implementation, or the reason of its failure."""
    return {way: _or_why(lambda way=way: memory.of(way, setting)) for way in memory.WAYS}  # type: ignore[misc]


def rest(setting: Setting, text: str, suite_model: str | None, repeats: int) -> dict[str, Any]:
    """Return the measurements other than steps: checkpoint, command line, data, scores."""
    scored = suite_model or str(setting.model)
    return {
        "checkpoint": _or_why(lambda: others.checkpoint(setting, repeats)),
        "help": _or_why(lambda: others.help_text(repeats)),
        "start": _or_why(lambda: others.start(text, str(setting.model), repeats)),
        "suite": _or_why(lambda: others.suite(scored, setting.device, setting.precision, repeats)),
    }


def tokens(setting: Setting, batches: Batches, steps: int) -> dict[str, float]:
    """Return the mean real tokens of a step's two views, and the share of padding in a padded batch."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(setting.model)
    texts = sentences(batches)
    lengths = []
    for step in random.Random(0).sample(range(steps), min(steps, 50)):
        rows = [texts[row] for row in batches.indices(step)]
        lengths.append([len(ids) for ids in tokenizer(rows, truncation=True, max_length=setting.length)["input_ids"]])
    real = sum(sum(batch) for batch in lengths)
    padded = sum(max(batch) * len(batch) for batch in lengths)
    return {"real": 2 * real / len(lengths), "padding": 1 - real / padded}


def use_threads(count: int | None) -> None:
    """Set the number of threads. None keeps torch's default."""
    if count is not None:
        torch.set_num_threads(count)


def _title(setting: Setting) -> str:
    return f"{setting.text.stem}, batch {setting.batch}, length {setting.length}, {setting.precision}"


def _or_why(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return act()
    except Exception as error:  # a part that fails must not affect the others
        return {"failed": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
