"""Compare the first ten losses of all methods on two devices, with tiny models and without dropout.

    python -m benchmarks.gpu.equality [--device cuda] [--json FILE]

Weights, sentences and random numbers are the same on both devices, because components sample on the CPU and move the
values to their device. Without a GPU, the second device is the CPU in double precision, which shows the effect of
rounding on the losses. Some losses have thresholds, or normalize a small gradient, and amplify rounding. Therefore a
recipe that differs by more than the limit runs again on the CPU, with weights that differ by a few rounding errors.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmarks.gpu.document import write
from cse_cli.core.devices import choose
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.runs.record import RunRecord
from cse_cli.training.build import prepare
from cse_cli.training.trainer import Trainer
from registry.resources.models import quiet_transformers
from tests.support.shrunken import Small, small

STEPS = 10
LIMIT = 1e-4
"""Largest difference of two fp32 losses within ten steps that holds for every method.

Relative to the loss, or to 0.1 if the loss is smaller. A loss near 0 is the difference of numbers near 20.
"""
DRAWS = 12
"""Number of CPU runs with changed weights, for a recipe beyond `LIMIT`."""


def recipes() -> list[str]:
    """Return the English recipes that train, one per method and variant, without other sizes and encoders."""
    names = [name for name in all_recipes() if not any(part in name for part in ("/", "_large", "_roberta", "_zh"))]
    return [name for name in names if load(name).recipe.train.steps != 0]


def parts(folder: Path) -> Small:
    """Write tiny models without dropout and sentences, and return them."""
    made = small(folder, rows=80)
    for model in made.models.values():
        file = model / "config.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        file.write_text(json.dumps({**config, **rates}), encoding="utf-8")
    return made


def losses(name: str, made: Small, device: str, double: bool = False, draw: int = 0) -> list[float]:
    """Return the first losses of a recipe with tiny models. `draw` > 0 multiplies each weight by 1 + 2⁻²²·N(0, 1)."""
    loaded = load(name)
    changed, dropped = made.options(loaded.recipe)
    without = dict(_dropouts(loaded.recipe.resolved()))
    changed += [f"{place}={value}" for place, value in without.items()]
    changed += [f"train.steps={STEPS}", "train.precision=fp32", "train.batch_size=16", "evaluate.eval_on_start=false"]
    recipe = load(name, changed, dropped)
    with tempfile.TemporaryDirectory() as folder, _exact(), _drawn_on_the_cpu():
        trainer = Trainer(
            prepare(recipe.recipe, 0, choose(device, "fp32"), RunRecord("unrecorded", None)),
            Path(folder),
            RunRecord("unrecorded", None),
        )
        if double:
            trainer.method.double()
        trainer.method.train()
        if draw:
            torch.manual_seed(draw)
            with torch.no_grad():
                for weights in trainer.method.parameters():
                    weights.mul_(1 + 2**-22 * torch.randn(weights.shape))
        torch.manual_seed(0)
        found = [float(trainer.stepper.take(step).loss) for step in range(STEPS)]
        trainer.stepper.close()
    return found


def _dropouts(tables: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the key of every dropout rate that a recipe sets, with the value 0."""
    for kind in ("encoders", "losses"):
        for name, part in tables[kind].items():
            if isinstance(part.get("dropout"), float):  # a frozen copy has true or false
                yield f"{kind}.{name}.dropout", 0.0


@contextmanager
def _exact() -> Iterator[None]:
    """Switch off TF32, so that fp32 is multiplied as fp32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


class _drawn_on_the_cpu(TorchFunctionMode):  # noqa: N801 - reads as what it does
    """Sample random numbers of every device from the CPU's stream, in single precision."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func in (torch.rand, torch.randn):
            place, kind = given.pop("device", None), given.pop("dtype", None)
            return func(*args, **given, device="cpu", dtype=torch.float32).to(place or "cpu", kind)
        if func in (torch.randint_like, torch.rand_like, torch.randn_like):
            return func(args[0].cpu(), *args[1:], **given).to(args[0].device)
        if func is torch.multinomial:
            return func(args[0].float().cpu(), *args[1:], **given).to(args[0].device)
        if func is F.dropout:
            return _dropout(*args, **given)
        if func is F.scaled_dot_product_attention and given.get("dropout_p"):
            return _attention(*args, **given)
        return func(*args, **given)


def _dropout(given: Tensor, p: float = 0.5, training: bool = True, **_: bool) -> Tensor:
    """Return dropout whose mask is sampled on the CPU."""
    if not training or p == 0:
        return given
    kept = torch.rand(given.shape).to(given.device) >= p
    return given * kept / (1 - p)


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **given: Any) -> Tensor:
    """Return scaled dot-product attention, softmax(QKᵀ/√d + mask) V, with the dropout of `_dropout`."""
    scale = given.get("scale") or query.shape[-1] ** -0.5
    scores = scale * query @ key.transpose(-2, -1)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    return _dropout(scores.softmax(-1), given["dropout_p"]) @ value


def compared(name: str, made: Small, device: str) -> dict[str, Any]:
    """Return the losses on both devices, their largest relative difference, and whether rounding explains it."""
    reference = losses(name, made, "cpu")
    other = losses(name, made, device, double=device == "cpu")
    largest = _apart(reference, other)
    found = {"cpu": reference, "other": other, "first": _apart(reference[:1], other[:1]), "largest": largest}
    if largest <= LIMIT:
        return {**found, "holds": True}
    rounding = max(_apart(reference, losses(name, made, "cpu", draw=draw)) for draw in range(1, DRAWS + 1))
    return {**found, "rounding": rounding, "holds": largest <= rounding}


def _apart(one: Sequence[float], two: Sequence[float]) -> float:
    return max(abs(a - b) / max(abs(a), 0.1) for a, b in zip(one, two, strict=True))


def attempt(name: str, made: Small, device: str) -> dict[str, Any]:
    """Compare one recipe and return the differences or the error. A recipe that fails must not hide the others."""
    quiet_transformers()
    torch.set_num_threads(1)  # more threads only wait for each other with models this small
    try:
        return compared(name, made, device)
    except Exception as error:
        return {"holds": False, "failed": f"{type(error).__name__}: {error}"}


def _is_beyond(one: Mapping[str, Any]) -> bool:
    return "failed" in one or "rounding" in one


def _beyond(one: Mapping[str, Any]) -> str:
    verdict = "rounding" if one["holds"] else "not rounding"
    return f"{one['largest']:.1e}, and {one['rounding']:.1e} on the CPU with a few rounding errors: {verdict}"


def main() -> None:
    """Compare every recipe and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*", help="Names of recipes. Default: all.")
    parser.add_argument("--workers", type=int, default=1, help="Number of processes.")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    names = asked.only or recipes()
    quiet_transformers()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(asked.workers, spawn) as pool:
        made = parts(Path(folder))
        found = dict(zip(names, pool.map(attempt, names, repeat(made), repeat(asked.device)), strict=True))
    good = sum(one["holds"] for one in found.values())
    against = "fp64" if asked.device == "cpu" else asked.device
    lines = [f"{good} of {len(found)} recipes have the same {STEPS} losses on cpu and {against}."]
    lines += [f"* {name}: {one.get('failed') or _beyond(one)}" for name, one in found.items() if _is_beyond(one)]
    largest = max((one["largest"] for one in found.values() if not _is_beyond(one)), default=0.0)
    lines.append(f"Largest relative difference of the others {largest:.1e} (limit {LIMIT:.0e}).")
    write(asked.json, {"recipes": found, "holds": good == len(found)}, lines)
    if good < len(found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
