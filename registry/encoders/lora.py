"""Low-rank adaptation (LoRA, Hu et al. 2021) of a transformers model, by `peft`."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from registry.errors import MissingError

ADAPTER = "adapter"
"""Directory of an export with only the trained matrices, in the format of `peft`."""
WEIGHTS = "adapter_model.safetensors"


def add_low_rank(model: Any, rank: int, alpha: int, dropout: float) -> Any:
    """Add trainable matrices to every linear layer of the blocks: W + α/rank · B·A.

    A starts from random numbers and B from zeros, so that the initial output does not change. All other weights are
    frozen. A and B are float32. Returns the configuration of `peft`.

    Raises:
        MissingError: If `peft` is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise MissingError(
            "lora_rank requires the package peft, which is not installed",
            'run pip install "cse-registry[llm]"',
            code="encoders.missing_package",
        ) from error
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules="all-linear")
    inject_adapter_in_model(config, model)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data = weight.data.float()
    return config


def save(model: Any, config: Any, origin: str, folder: Path) -> None:
    """Write the trained matrices to `adapter/`, which `PeftModel.from_pretrained` loads on top of the original model.

    Args:
        model: Model with matrices.
        config: Configuration from `add_low_rank`.
        origin: Name of the original model.
        folder: Directory of the export.
    """
    from safetensors.torch import save_file

    target = folder / ADAPTER
    target.mkdir(exist_ok=True)
    config.base_model_name_or_path = origin
    config.save_pretrained(str(target))
    weights = {name: weight for name, weight in model.state_dict().items() if "lora_" in name}
    weights = {f"base_model.model.{name}".replace(".default.", "."): weight for name, weight in weights.items()}
    save_file({name: weight.detach().cpu().contiguous() for name, weight in weights.items()}, target / WEIGHTS)


def merged(model: Any) -> Any:
    """Return a copy of a model with merged LoRA matrices: W + α/rank · B·A."""
    from peft.tuners.lora import LoraLayer

    copied = deepcopy(model)
    for name, layer in list(copied.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge()
            copied.set_submodule(name, layer.get_base_layer())
    return copied
