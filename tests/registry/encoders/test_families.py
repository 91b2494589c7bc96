from dataclasses import replace
from itertools import product

import pytest
import torch
from transformers import AutoModel, BartConfig, BartModel, LlamaModel

from registry.encoders import backbone
from registry.encoders.compiled import prepare
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.tokens import Sample, Tokens
from tests.registry.encoders.test_every_family import contrast
from tests.registry.encoders.vectors import slow_pool, tokens_of
from tests.support.chosen import these
from tests.support.errors import refuses
from tests.support.tiny import (
    _write,
    sentences,
    tiny_bert,
    tiny_gpt2,
    tiny_llama,
    tiny_modernbert,
    tiny_opt,
    tiny_roberta,
)
from tests.support.versions import needs

pytestmark = pytest.mark.slow

EOL = 'the cat "{text}" sings in red _'
ECHO = 'a dog sees "{text}" and "{text}" in the house'
DECODERS = [tiny_llama, tiny_gpt2, tiny_opt]
MAKERS = [*DECODERS, tiny_modernbert, tiny_bert, tiny_roberta]
POOLINGS = ["last", "mean", "weighted_mean", "cls"]
CASES = [(make, pooling) for make in MAKERS for pooling in POOLINGS if make not in DECODERS or pooling != "cls"]


def build(folder, make, **values):
    return TransformerEncoder(str(make(folder)), **{"pooling": "mean", **values})


def padded_left(tokens, counted):
    """The same rows with their padding in front; positions from the first real token, or simply places."""
    rows = [row[mask == 1] for row, mask in zip(tokens.ids, tokens.mask, strict=True)]
    ids, mask, positions = (torch.zeros_like(tokens.ids) for _ in range(3))
    for at, row in enumerate(rows):
        start = tokens.length - len(row)
        ids[at, start:], mask[at, start:] = row, 1
        positions[at, start:] = torch.arange(len(row))
    places = torch.arange(tokens.length).expand_as(ids)
    return Tokens(ids, mask, torch.zeros_like(ids), positions if counted else places)


@pytest.mark.exhaustive
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(("make", "pooling"), [case for case in CASES if case[0] not in (tiny_bert, tiny_roberta)])
def test_padding_on_the_left_gives_the_same_vectors(tmp_path, make, pooling, counted):
    for attention in ("causal", "bidirectional") if make in DECODERS else (None,):
        encoder = build(tmp_path, make, pooling=pooling, attention=attention)
        right = tokens_of(encoder)
        assert not right.mask.all()
        left = padded_left(right, counted)
        torch.testing.assert_close(encoder.encode_for_eval(left), encoder.encode_for_eval(right), rtol=0, atol=1e-5)
        encoder.eval()
        both = [encoder.encode(tokens, encoder.embed(tokens)).sentence for tokens in (left, right)]
        torch.testing.assert_close(*both, rtol=0, atol=1e-5)


def first_states(encoder, padded):
    """The first token's states in two sentences that differ in their last token."""
    one, two = "a cat sees a dog", "a cat sees a man"
    tokens = tokens_of(encoder, [one, two, "a cat sees a dog in the red house"] if padded else [one, two])
    assert bool(tokens.mask.all()) is not padded
    return encoder.eval().encode(tokens, encoder.embed(tokens)).hidden[:2, 0]


@pytest.mark.parametrize("make", DECODERS)
def test_only_with_bidirectional_attention_does_the_end_matter(tmp_path, make):
    for attention, matters in ((None, False), ("causal", False), ("bidirectional", True)):
        if matters:
            needs("bidirectional attention of decoders")
        encoder = build(tmp_path, make, attention=attention)
        assert encoder.attention == (attention or "causal")
        for padded in (True, False):
            first, second = first_states(encoder, padded)
            assert ((first - second).abs().max() > 1e-3) == matters != torch.equal(first, second)


def test_modern_encoders_are_bidirectional_and_never_causal(tmp_path):
    encoder = build(tmp_path, tiny_modernbert)
    assert encoder.attention == "bidirectional"
    for padded in (True, False):
        tokens = tokens_of(encoder, ["a cat", "a dog"] + ["a cat sees a dog"] * padded)
        first, second = encoder.eval().encode(tokens, encoder.embed(tokens)).hidden[:2, 0]
        assert (first - second).abs().max() > 1e-3
    with refuses("encoders.unsupported_attention", "'causal'", "ModernBertModel", "bidirectional"):
        build(tmp_path, tiny_modernbert, attention="causal")


def test_attention_that_depends_on_padding_is_refused(tmp_path, monkeypatch):
    """A decoder with only a changed configuration: without a mask its modules were causal."""
    model = AutoModel.from_pretrained(tiny_llama(tmp_path)).eval()
    monkeypatch.setattr(backbone, "attention_of", lambda _, padded: "bidirectional" if padded else "causal")
    with refuses("encoders.unsupported_attention", "causal without padding", "bidirectional with padding"):
        backbone.set_attention(model, "bidirectional")


def test_bidirectional_states_equal_those_under_a_padding_mask(tmp_path):
    """transformers takes a mask (B, 1, L, L) as it is; its eager attention adds it."""
    needs("bidirectional attention of decoders")
    encoder = build(tmp_path, tiny_llama, attention="bidirectional").eval()
    model = LlamaModel.from_pretrained(encoder.model, attn_implementation="eager").eval()
    for texts in (sentences(), ["a cat sees a dog", "a cat sees a man"]):
        tokens = tokens_of(encoder, texts)
        hidden = torch.zeros(tokens.rows, 1, tokens.length, tokens.length)
        hidden = hidden.masked_fill(tokens.mask[:, None, None, :] == 0, torch.finfo(torch.float32).min)
        with torch.no_grad():
            expected = model(tokens.ids, attention_mask=hidden).last_hidden_state
        found = encoder.encode(tokens, encoder.embed(tokens)).hidden
        torch.testing.assert_close(found[tokens.mask == 1], expected[tokens.mask == 1], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "layer"),
    these(
        [(tiny_llama, 0), (tiny_llama, 3), (tiny_gpt2, 2), (tiny_opt, 1), (tiny_modernbert, 2)],
        product([*DECODERS, tiny_modernbert], [0, 1, 2, 3]),
    ),
)
def test_a_layer_is_the_hidden_state_of_that_number(tmp_path, make, layer):
    encoder = build(tmp_path, make, pooling="mean", layer=layer)
    tokens = tokens_of(encoder)
    model = AutoModel.from_pretrained(encoder.model)
    with torch.no_grad():
        states = model(tokens.ids, attention_mask=tokens.mask, output_hidden_states=True).hidden_states[layer]
    expected = slow_pool("mean", states, tokens.mask)
    torch.testing.assert_close(encoder.encode_for_eval(tokens), expected, rtol=0, atol=1e-6)


def prepended(model, ids, place, start, stop):
    """One sentence through Llama's blocks; before some of them the last state is copied to the placeholder."""
    length = len(ids)
    mask = torch.full((1, 1, length, length), torch.finfo(torch.float32).min).triu(1)
    states = model.embed_tokens(ids[None])
    angles = model.rotary_emb(states, torch.arange(length)[None])
    outputs = []
    for number, block in enumerate(model.layers):
        if start <= number < stop:
            states = states.clone()
            states[0, place] = states[0, -1]
        states = block(states, attention_mask=mask, position_embeddings=angles)
        outputs.append(states)
    return outputs, model.norm(states)


@pytest.mark.parametrize("bounds", these([[0, 3], [1, 2]], [[0, 1], [1, 2], [1, 3], [0, 3]]))
@torch.no_grad()
def test_the_last_state_is_put_where_the_placeholder_stands(tmp_path, bounds):
    encoder = build(tmp_path, tiny_llama, pooling="last", prepend=bounds, placeholder="_")
    inner = build(tmp_path, tiny_llama, pooling="last", prepend=bounds, placeholder="_", layer=2)
    plain = build(tmp_path, tiny_llama, pooling="last")
    model = LlamaModel.from_pretrained(encoder.model, attn_implementation="eager").eval()
    texts = ["a _ cat sees a dog", "the _ man sings _ in a red house"]  # the first placeholder counts
    tokens = tokens_of(encoder, texts)
    for row, place in ((0, 2), (1, 2)):
        outputs, last = prepended(model, tokens.ids[row][tokens.mask[row] == 1], place, *bounds)
        torch.testing.assert_close(encoder.encode_for_eval(tokens)[row], last[0, -1], rtol=0, atol=1e-5)
        torch.testing.assert_close(inner.encode_for_eval(tokens)[row], outputs[1][0, -1], rtol=0, atol=1e-5)
    assert (encoder.encode_for_eval(tokens) - plain.encode_for_eval(tokens)).abs().max() > 1e-3
    left = padded_left(tokens, counted=False)
    torch.testing.assert_close(encoder.encode_for_eval(left), encoder.encode_for_eval(tokens), rtol=0, atol=1e-5)
    with refuses("encoders.no_placeholder"):
        encoder.encode_for_eval(tokens_of(encoder, ["a cat"]))


@pytest.mark.parametrize("make", MAKERS)
def test_half_precision_and_an_empty_sentence_make_nearly_the_same_vectors_in_single(tmp_path, make):
    encoder = build(tmp_path, make, pooling="last")
    tokens = tokens_of(encoder)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = encoder.encode_for_eval(tokens)
    assert half.dtype == torch.float32
    assert torch.cosine_similarity(half, encoder.encode_for_eval(tokens)).min() > 0.98
    with_empty = encoder.encode_for_eval(tokens_of(encoder, [*sentences(3), ""]))
    assert with_empty.isfinite().all()
    torch.testing.assert_close(
        with_empty[:3], encoder.encode_for_eval(tokens_of(encoder, sentences(3))), rtol=0, atol=1e-5
    )
    assert encoder.encode_for_eval(tokens_of(encoder, [""])).isfinite().all()


def test_attention_dropout_makes_two_views_differ_and_decoders_are_not_compiled(tmp_path):
    quiet = build(tmp_path, tiny_llama)
    tokens = tokens_of(quiet)
    assert torch.equal(quiet.encode(tokens, quiet.embed(tokens)).sentence, quiet.encode_for_eval(tokens))
    needs("bidirectional attention of decoders")
    encoder = build(tmp_path, tiny_llama, attention="bidirectional", dropout=0.3, dropout_scope="attention")
    torch.manual_seed(0)
    first, second = (encoder.encode(tokens, encoder.embed(tokens)).sentence for _ in range(2))
    assert (first - second).abs().max() > 1e-3
    assert prepare(build(tmp_path, tiny_llama), 8, print) == []
    assert len(prepare(build(tmp_path, tiny_bert), 8, print)) == 1


@pytest.mark.parametrize(("make", "key"), [(tiny_llama, "attention_dropout"), (tiny_gpt2, "attn_pdrop")])
def test_the_rate_goes_where_the_configuration_has_it(tmp_path, make, key):
    assert getattr(build(tmp_path, make, dropout=0.3, dropout_scope="attention").backbone.config, key) == 0.3


def test_rows_computed_again_have_the_same_loss_and_gradient(tmp_path):
    found = []
    for rows in (None, 3):
        encoder = build(tmp_path, tiny_llama)
        encoder.expect(hidden_read=False, mini_batch_size=rows)
        tokens = tokens_of(encoder)
        loss = contrast(encoder.encode(tokens, encoder.embed(tokens)).sentence)
        loss.backward()
        found.append((loss, [p.grad for p in encoder.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_low_rank_matrices_start_neutral_and_train_alone(tmp_path):
    pytest.importorskip("peft", reason="peft is not installed (extra 'llm')")
    plain = build(tmp_path, tiny_llama)
    encoder = build(tmp_path, tiny_llama, lora_rank=4, lora_alpha=8)
    tokens = tokens_of(plain)
    assert torch.equal(encoder.encode_for_eval(tokens), plain.encode_for_eval(tokens))
    trained = {name: weight for name, weight in encoder.named_parameters() if weight.requires_grad}
    assert len(trained) == 3 * 7 * 2  # blocks × linear layers × A and B
    assert all("lora_" in name for name in trained)
    layer = encoder.backbone.layers[1].mlp.up_proj
    down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    with torch.no_grad():
        up.normal_()
        plain.backbone.layers[1].mlp.up_proj.weight += 8 / 4 * up @ down
    torch.testing.assert_close(encoder.encode_for_eval(tokens), plain.encode_for_eval(tokens), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({"layer": 4}, "encoders.unknown_layer", ["layer = 4", "0 to 3"]),
        ({"prepend": [1, 2]}, "encoders.incomplete_prepend", ["placeholder"]),
        ({"placeholder": "_"}, "encoders.incomplete_prepend", ["prepend"]),
        ({"prepend": [1, 4], "placeholder": "_"}, "encoders.unknown_block", ["prepend = [1, 4]", "blocks 0 to 2"]),
        ({"lora_alpha": 8}, "encoders.lora_without_rank", ["lora_rank"]),
        ({"freeze": ["layer"]}, "encoders.unknown_part", ["'layer'", "Did you mean 'layers'"]),
        ({"prepend": [1, 2], "placeholder": "a cat"}, "vocabulary.unknown_token", ["a cat"]),
        ({"pooling": "text"}, "encoders.no_template", ['"text"']),
        ({"pooling": "text", "template": "a {text} {text}"}, "encoders.ambiguous_template", ['"text"']),
        ({"template_joined": True}, "encoders.joined_template", ["template_joined"]),
        ({"template_joined": True, "template": ECHO, "pooling": "text"}, "encoders.joined_template", ["_joined"]),
    ],
)
def test_parameters_that_do_not_fit_are_refused(tmp_path, values, code, named):
    with refuses(code, *named):
        build(tmp_path, tiny_llama, **values)


def test_encoders_without_their_own_model_or_package_are_refused(tmp_path, monkeypatch):
    settings = BartConfig(vocab_size=60, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2)
    folder = _write(BartModel, settings, tmp_path / "bart", 0)
    with refuses("models.no_encoder", "bart"):
        TransformerEncoder(str(folder))
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with refuses("encoders.missing_package", "lora_rank", "peft", 'pip install "peft'):
        build(tmp_path, tiny_llama, lora_rank=2)


def test_shuffled_positions_are_those_of_a_permuted_sentence(tmp_path):
    """With all tokens seen from everywhere, the order of places is nothing, that of positions everything."""
    needs("bidirectional attention of decoders")
    encoder = build(tmp_path, tiny_gpt2, attention="bidirectional", pooling="mean")
    tokens = tokens_of(encoder, ["a cat sees the dog"])
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = replace(tokens, ids=tokens.ids[:, order], positions=tokens.positions[:, order])
    torch.testing.assert_close(encoder.encode_for_eval(moved), encoder.encode_for_eval(tokens), rtol=0, atol=1e-5)
    assert (
        encoder.encode_for_eval(replace(moved, positions=tokens.positions)) - encoder.encode_for_eval(tokens)
    ).abs().max() > 1e-3


def in_template(encoder, text, template):
    """Ids of one sentence in a template, built by hand: special tokens, then every piece by itself."""

    def ids(part):
        return encoder.vocabulary.tokenizer(part, add_special_tokens=False)["input_ids"]

    parts = template.split("{text}")
    row, own = [], []
    for number, part in enumerate(parts):
        row += ids(part)
        if number < len(parts) - 1:
            own.append(range(len(row), len(row) + len(ids(text))))
            row += ids(text)
    first = encoder.vocabulary.tokenizer("")["input_ids"]
    return first + row, [place + len(first) for place in own[-1]]


@pytest.mark.parametrize(
    ("make", "template", "pooling"),
    these(
        [(tiny_llama, EOL, "last"), (tiny_llama, ECHO, "text"), (tiny_gpt2, ECHO, "mean"), (tiny_opt, EOL, "text")],
        product(DECODERS, [EOL, ECHO], ["last", "mean", "weighted_mean", "text"]),
    ),
)
def test_a_sentence_is_read_in_its_template(tmp_path, make, template, pooling):
    encoder = build(tmp_path, make, template=template, pooling=pooling)
    model = AutoModel.from_pretrained(encoder.model).eval()
    texts = sentences(4)
    tokens = tokens_of(encoder, texts)
    vectors = encoder.encode_for_eval(tokens)
    torch.testing.assert_close(
        encoder.eval().encode(tokens, encoder.embed(tokens)).sentence, vectors, rtol=0, atol=1e-6
    )
    for row, text in enumerate(texts):
        ids, own = in_template(encoder, text, template)
        assert ids == tokens.ids[row][tokens.mask[row] == 1].tolist()
        with torch.no_grad():
            states = model(torch.tensor([ids])).last_hidden_state
        kept = states[:, own] if pooling == "text" else states
        expected = slow_pool("mean" if pooling == "text" else pooling, kept, torch.ones(kept.shape[:2]))[0]
        torch.testing.assert_close(vectors[row], expected, rtol=0, atol=1e-5)


def test_the_last_copy_is_found_wherever_a_row_is_padded(tmp_path):
    encoder = build(tmp_path, tiny_llama, template=ECHO, pooling="text")
    right = tokens_of(encoder)
    rows = [right.text[at][right.mask[at] == 1] for at in range(right.rows)]
    text = torch.zeros_like(right.ids)
    for at, row in enumerate(rows):
        text[at, right.length - len(row) :] = row
    left = replace(padded_left(right, counted=False), text=text)
    torch.testing.assert_close(encoder.encode_for_eval(left), encoder.encode_for_eval(right), rtol=0, atol=1e-5)
    assert encoder.encode_for_eval(tokens_of(encoder, ["", "a cat"])).isfinite().all()


@pytest.mark.parametrize("pooling", ["last", "text"])
def test_the_vectors_of_several_templates_are_averaged(tmp_path, pooling):
    several = [EOL, ECHO, "{text} sings"]
    encoder = build(tmp_path, tiny_opt, template=several, pooling=pooling)
    texts = [*sentences(5), ""]
    each = [build(tmp_path, tiny_opt, template=template, pooling=pooling) for template in several]
    expected = sum(one.encode_for_eval(tokens_of(one, texts)) for one in each) / 3
    torch.testing.assert_close(encoder.encode_for_eval(tokens_of(encoder, texts)), expected, rtol=0, atol=1e-6)
    assert encoder.max_length == min(one.max_length for one in each)
    tokens = tokens_of(encoder)
    with refuses("encoders.several_templates", "3 templates"):
        encoder.encode(tokens, encoder.embed(tokens))
    with refuses("encoders.several_templates", "3 templates"):
        encoder.encode_for_eval(tokens, encoder.embed(tokens))


def byte_level(folder):
    """Give a model a byte-level tokenizer, which joins punctuation, and knows a word by the space before it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=48, special_tokens=["</s>"], initial_alphabet=[])
    backend.train_from_iterator(['a cat." b', 'the dog."'] * 9, trainer)
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>").save_pretrained(folder)


def test_template_and_sentence_can_be_tokenized_together(tmp_path):
    folder = tiny_gpt2(tmp_path)
    byte_level(folder)
    template = 'a "{text}" b'
    joined, apart = (
        TransformerEncoder(str(folder), pooling="last", template=template, template_joined=each)
        for each in (True, None)
    )
    texts = ["the cat.", "dog"]
    rows = [joined.vocabulary.tokenizer(template.replace("{text}", text))["input_ids"] for text in texts]
    assert joined.vocabulary.ids(texts, 32) == rows
    assert apart.vocabulary.ids(texts, 32) != rows  # '."' is one piece
    with torch.no_grad():
        model = AutoModel.from_pretrained(folder).eval()
        expected = torch.stack([model(torch.tensor([row])).last_hidden_state[0, -1] for row in rows])
    torch.testing.assert_close(joined.encode_for_eval(joined.vocabulary.pad(rows)), expected, rtol=0, atol=1e-5)
    short = joined.vocabulary.ids(["the cat and the dog"], 3)[0]
    kept = joined.vocabulary.tokenizer("the cat and the dog")["input_ids"][:3]
    assert joined.vocabulary.decode(short) == f'a "{joined.vocabulary.decode(kept)}" b'
    assert joined.vocabulary.fingerprint != apart.vocabulary.fingerprint
    with pytest.raises(CseError, match="tokenized together with the sentence is only for evaluation"):
        joined.vocabulary.tokens([Sample("a cat")], 32)
