"""Checks of the parameters of the encoder `transformer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from registry.encoders import families, templates
from registry.encoders.pooling import averaged
from registry.errors import CseError
from registry.resources.models import WeightType

if TYPE_CHECKING:
    from registry.encoders.transformer import TransformerEncoder


def check_settings(
    encoder: TransformerEncoder, adapted: bool, dtype: WeightType | None, drophead: float | None
) -> None:
    """Check parameters that depend only on each other.

    Args:
        encoder: Encoder, before its model is loaded.
        adapted: Whether low-rank matrices are trained.
        dtype: Type of the weights.
        drophead: Rate of dropped attention heads.

    Raises:
        CseError: If they do not fit.
    """
    poolings = (encoder.pooling, encoder.eval_pooling)
    denoise = (encoder.denoise is not None, encoder.denoise_at_eval)
    templates.check(encoder.templates, poolings, encoder.template_joined, denoise)
    if encoder.checkpointing and (drophead is not None or encoder.prepend is not None):
        raise CseError(
            "checkpointing = true does not work with drophead or prepend, which the second computation would skip",
            "remove checkpointing, or set train.mini_batch_size instead",
            code="encoders.no_checkpointing",
        )
    if not adapted and dtype in ("8bit", "4bit"):
        raise CseError(
            f'dtype = "{dtype}" requires LoRA, because quantized weights cannot be trained',
            "set lora_rank, for example lora_rank = 16",
            code="encoders.lora_without_rank",
        )
    if (encoder.prepend is None) != (encoder.placeholder is None):
        raise CseError(
            "prepend and placeholder work only together, and one of them is not set",
            "set both, or remove both",
            code="encoders.incomplete_prepend",
        )
    if encoder.layer is not None and any(averaged(each) for each in poolings):
        raise CseError(
            f"layer = {encoder.layer} has no effect with a pooling over two layers",
            "remove layer, or use another pooling",
            code="encoders.layer_with_average",
        )


def check_architecture(encoder: TransformerEncoder) -> None:
    """Check parameters that only some models support.

    Raises:
        CseError: If the encoder's model does not support one of them.
    """
    count = int(encoder.backbone.config.num_hidden_layers)
    if encoder.layer is not None and encoder.layer > count:
        raise CseError(
            f"layer = {encoder.layer} does not exist: '{encoder.model}' has layers 0 to {count}",
            f"set layer to a value from 0 to {count}",
            code="encoders.unknown_layer",
        )
    if encoder.prepend is not None and not encoder.prepend[0] < encoder.prepend[1] <= count:
        raise CseError(
            f"prepend = {encoder.prepend} is not a range of blocks: '{encoder.model}' has blocks 0 to {count - 1}",
            f"set prepend = [a, b] with a < b ≤ {count}, for example [1, {count}]",
            code="encoders.unknown_block",
        )
    if encoder.placeholder is not None:
        encoder.vocabulary.id_of(encoder.placeholder)
        families.blocks(encoder.backbone)
    if encoder.attention == "causal" and "cls" in (encoder.pooling, encoder.eval_pooling):
        raise CseError(
            f"pooling \"cls\" reads only the first token, which attends to no other in '{encoder.model}'",
            'set pooling = "last" or "mean", or attention = "bidirectional"',
            code="encoders.blind_pooling",
        )
