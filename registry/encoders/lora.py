"""Low-rank adaptation (LoRA, Hu et al. 2021) of a transformers model, by `peft`."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from registry.encoders.export import write_weights
from registry.errors import CseError, MissingError, install_command

ADAPTER = "adapter"
"""Directory of an export with only the trained matrices, in the format of `peft`."""
WEIGHTS = "adapter_model.safetensors"


def configured(rank: int | None, alpha: int | None, dropout: float | None) -> Any:
    """Return the configuration of `peft` for matrices of a rank, or None without a rank."""
    if rank is None:
        if alpha is not None or dropout is not None:
            raise CseError(
                "lora_alpha and lora_dropout have no effect without lora_rank",
                "set lora_rank, for example lora_rank = 16",
                code="encoders.lora_without_rank",
            )
        return None
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise MissingError(
            "lora_rank requires the package peft, which is not installed",
            f"run `{install_command('llm')}`",
            code="encoders.missing_package",
        ) from error
    return LoraConfig(r=rank, lora_alpha=alpha or rank, lora_dropout=dropout or 0.0, target_modules="all-linear")


def add_low_rank(model: Any, config: Any) -> None:
    """Add trainable matrices to every linear layer of the blocks: W + α/rank · B·A.

    A starts from random numbers and B from zeros, so that the initial output does not change. All other weights are
    frozen. A and B are float32.
    """
    from peft import inject_adapter_in_model

    inject_adapter_in_model(config, model)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data = weight.data.float()


def save(model: Any, config: Any, origin: str, folder: Path) -> None:
    """Write the trained matrices to `adapter/`, which `PeftModel.from_pretrained` loads onto the original model."""
    target = folder / ADAPTER
    target.mkdir(exist_ok=True)
    config.base_model_name_or_path = origin
    config.save_pretrained(str(target))
    weights = {name: weight for name, weight in model.state_dict().items() if "lora_" in name}
    weights = {f"base_model.model.{name}".replace(".default.", "."): weight for name, weight in weights.items()}
    write_weights(target / WEIGHTS, weights, marked=False)


def merged(model: Any) -> Any:
    """Return a copy of a model with merged LoRA matrices: W + α/rank · B·A."""
    from peft.tuners.lora import LoraLayer

    copied = deepcopy(model)
    for name, layer in list(copied.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge()
            copied.set_submodule(name, layer.get_base_layer())
    return copied
