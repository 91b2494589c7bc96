"""A random small model of every family that the encoder `transformer` supports, with a tokenizer."""

from pathlib import Path
from typing import Any

from tests.support.tiny import SPECIALS, WORDS, _decoder_tokenizer, _roberta_tokenizer, _write
from tests.support.versions import needs

WIDTH, LAYERS, HEADS = 16, 3, 4
_SHAPE = {
    "vocab_size": len(SPECIALS) + len(WORDS) + 1,  # Qwen2's tokenizer adds a token
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH,
    "max_position_embeddings": 64,
}
_FEW_KEYS = {"num_key_value_heads": 2, "head_dim": 4}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1},
    "xlm-roberta": {"max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1},
    "electra": {"embedding_size": 8},
    "albert": {"embedding_size": 8},
    "mpnet": {"max_position_embeddings": 66},
    "distilbert": {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 2 * WIDTH},
    "deberta-v2": {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "share_att_key": True,
        "position_buckets": 8,
        "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm",
    },
    "modernbert": {"local_attention": 4, "pad_token_id": 0},
    "eurobert": {"num_key_value_heads": 2, "pad_token_id": 0},
    "t5": {"d_model": WIDTH, "d_kv": 4, "d_ff": 2 * WIDTH, "num_layers": LAYERS, "num_heads": HEADS},
}
DECODERS: dict[str, dict[str, Any]] = {
    "llama": _FEW_KEYS,
    "mistral": {**_FEW_KEYS, "sliding_window": 4},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": _FEW_KEYS,
    "gemma": _FEW_KEYS,
    "gemma2": {**_FEW_KEYS, "sliding_window": 4, "query_pre_attn_scalar": 4},
    "gemma3_text": {**_FEW_KEYS, "sliding_window": 4, "query_pre_attn_scalar": 4},
    "opt": {"ffn_dim": 2 * WIDTH, "word_embed_proj_dim": WIDTH},
    "phi": {"pad_token_id": 0},
    "gpt2": {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64},
}
FAMILIES = [*ENCODERS, *DECODERS]
_COUNTED_FROM_PADDING = ("roberta", "xlm-roberta", "mpnet")


def tiny(folder: Path, family: str, seed: int = 0) -> Path:
    """Write a random model of a family and its tokenizer below `folder`."""
    from transformers import MODEL_MAPPING, AutoConfig

    if family == "eurobert":
        needs("EuroBERT")
    values = {**_SHAPE, **{**ENCODERS, **DECODERS}[family]}
    if family in ("distilbert", "t5", "gpt2"):  # they have other names for the shape
        values = {key: one for key, one in values.items() if key not in _SHAPE or key[:5] in ("vocab", "max_p")}
    settings = AutoConfig.for_model(family, **values)
    cls = MODEL_MAPPING[type(settings)]
    tokenizer = _roberta_tokenizer() if family in _COUNTED_FROM_PADDING else None
    if family in DECODERS:
        tokenizer = _decoder_tokenizer("<s>")
    return _write(cls, settings, folder / family, seed, tokenizer)
