import pytest
import torch
from transformers import AutoModel

from registry.encoders.transformer import TransformerEncoder
from registry.heads.mlp import Mlp
from registry.tokens import Sample
from tests.registry.encoders.vectors import slow_pool as token_pool
from tests.registry.encoders.vectors import tokens_of
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_albert, tiny_bert, tiny_electra, tiny_roberta

MAKERS = [tiny_bert, tiny_roberta, tiny_albert, tiny_electra]


def whole_forward(folder, tokens):
    """All hidden states by transformers' own forward; RoBERTa numbers its positions itself."""
    model = AutoModel.from_pretrained(folder)
    with torch.no_grad():
        return model(tokens.ids, attention_mask=tokens.mask, output_hidden_states=True).hidden_states


def slow_pool(pooling, states, mask, first):
    """Sentence by sentence, token by token."""
    pair = {"last2": (-2, -1), "first_last": (first, -1)}.get(pooling, (-1, -1))
    return token_pool("cls" if pooling == "cls" else "mean", (states[pair[0]] + states[pair[1]]) / 2, mask)


@pytest.mark.slow
@pytest.mark.parametrize("site", ["layer", "word"])
@pytest.mark.parametrize("make", MAKERS)
def test_embed_then_encode_is_the_models_own_forward(tmp_path, make, site):
    folder = make(tmp_path)
    encoder = TransformerEncoder(str(folder), augment_at=site).eval()
    tokens = tokens_of(encoder)
    hidden = encoder.encode(tokens, encoder.embed(tokens)).hidden
    real, expected = tokens.mask == 1, whole_forward(folder, tokens)[-1]
    torch.testing.assert_close(hidden[real], expected[real], rtol=0, atol=1e-6)
    assert torch.equal(encoder.encode_for_eval(tokens), expected[:, 0])
    alone = tokens_of(encoder, sentences(1))
    assert torch.equal(encoder.encode(alone, encoder.embed(alone)).hidden, whole_forward(folder, alone)[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pooling", "first"), [("cls", 0), ("mean", 0), ("last2", 0), ("first_last", 0), ("first_last", 1)]
)
@pytest.mark.parametrize("make", MAKERS)
def test_every_pooling_equals_its_literal_form(tmp_path, make, pooling, first):
    folder = make(tmp_path)
    encoder = TransformerEncoder(str(folder), pooling=pooling, first_layer_index=first)
    tokens = tokens_of(encoder)
    expected = slow_pool(pooling, whole_forward(folder, tokens), tokens.mask, first)
    assert torch.allclose(encoder.encode_for_eval(tokens), expected, atol=1e-6)
    assert torch.allclose(encoder.eval().encode(tokens, encoder.embed(tokens)).sentence, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("hidden_read", [True, False])
@pytest.mark.parametrize("make", [tiny_bert, tiny_roberta])
def test_attention_to_padding_in_training_can_be_enabled(tmp_path, make, hidden_read):
    """DCLR's code: transformers' own forward without a mask; evaluation has the mask."""
    folder = make(tmp_path)
    encoder = TransformerEncoder(str(folder), dropout=0.0, attend_padding=True)
    encoder.expect(hidden_read=hidden_read, mini_batch_size=None)
    tokens = tokens_of(encoder)
    assert not tokens.mask.all()
    with torch.no_grad():
        expected = AutoModel.from_pretrained(folder)(tokens.ids).last_hidden_state[:, 0]
    found = encoder.encode(tokens, encoder.embed(tokens)).sentence
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    masked = whole_forward(folder, tokens)[-1][:, 0]
    assert torch.equal(encoder.encode_for_eval(tokens), masked)
    padded = tokens.mask.eq(0).any(1)
    assert (found - masked)[padded].abs().max() > 1e-4
    plain = TransformerEncoder(str(folder), pooling="mean", dropout=0.0, attend_padding=True)
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder)(tokens.ids, output_hidden_states=True).hidden_states
    mean = slow_pool("mean", states, tokens.mask, 0)  # the pooling still averages real tokens
    torch.testing.assert_close(plain.encode(tokens, plain.embed(tokens)).sentence, mean, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_two_passes_differ_by_dropout_alone_and_pairs_use_the_second_segment(tmp_path):
    folder = str(tiny_bert(tmp_path))
    encoder = TransformerEncoder(folder)
    tokens = tokens_of(encoder)
    vectors = encoder.embed(tokens)
    assert torch.equal(vectors, encoder.embed(tokens))
    assert not torch.equal(encoder.encode(tokens, vectors).sentence, encoder.encode(tokens, vectors).sentence)
    still = TransformerEncoder(folder, dropout=0.0)
    assert torch.equal(still.encode(tokens, vectors).sentence, still.encode(tokens, vectors).sentence)
    assert torch.equal(still.encode(tokens, vectors).embeddings, vectors)
    folder = tiny_bert(tmp_path)
    encoder = TransformerEncoder(str(folder)).eval()
    tokens = encoder.vocabulary.tokens([Sample("the cat", "a dog")], 32)
    with torch.no_grad():
        expected = AutoModel.from_pretrained(folder)(tokens.ids, token_type_ids=tokens.types).last_hidden_state
    assert torch.equal(encoder.encode(tokens, encoder.embed(tokens)).hidden, expected)


@pytest.mark.parametrize("site", ["layer", "word"])
def test_dropout_of_the_embedding_output_is_sampled_once(tmp_path, site):
    encoder = TransformerEncoder(str(tiny_bert(tmp_path)), dropout=0.25, dropout_scope="embedding", augment_at=site)
    tokens = tokens_of(encoder, sentences(64))
    encoded = encoder.encode(tokens, encoder.embed(tokens))
    encoder.eval()
    full = encoder.encode(tokens, encoder.embed(tokens)).embeddings
    dropped = encoded.embeddings == 0
    assert abs(dropped.float().mean().item() - 0.25) < 0.03
    assert torch.allclose(encoded.embeddings[~dropped], full[~dropped] / 0.75, atol=1e-5)


@pytest.mark.parametrize(
    ("scope", "embedding", "hidden", "attention"),
    [("all", 0.4, 0.4, 0.4), ("hidden", 0.4, 0.4, 0.2), ("embedding", 0.4, 0.1, 0.2)],
)
def test_dropout_scope(tmp_path, scope, embedding, hidden, attention):
    folder = tiny_bert(tmp_path, attention_probs_dropout_prob=0.2)
    encoder = TransformerEncoder(str(folder), dropout=0.4, dropout_scope=scope)
    layer = encoder.backbone.encoder.layer[0]
    assert encoder.dropout.p == embedding
    assert layer.output.dropout.p == layer.attention.output.dropout.p == hidden
    assert layer.attention.self.dropout.p == attention


@pytest.mark.slow
def test_evaluation_ignores_dropout_and_head(tmp_path):
    encoder = TransformerEncoder(str(tiny_bert(tmp_path)), pooling="cls", eval_pooling="mean", dropout=0.5)
    encoder.attach({"mlp": Mlp()})
    tokens = tokens_of(encoder)
    plain = TransformerEncoder(str(tmp_path / "tiny"), pooling="mean").eval()
    assert torch.equal(encoder.encode_for_eval(tokens), plain.encode_for_eval(tokens))
    assert encoder.backbone.training
    assert not plain.training


@pytest.mark.slow
def test_a_head_stands_between_pooling_and_loss_and_must_exist_to_be_kept(tmp_path):
    encoder = TransformerEncoder(str(tiny_bert(tmp_path)), head_at_eval=True)
    encoder.attach({"mlp": Mlp()})
    encoder.eval()
    tokens = tokens_of(encoder)
    encoded = encoder.encode(tokens, encoder.embed(tokens))
    assert torch.equal(encoded.sentence, encoder.heads["mlp"](encoded.hidden[:, 0], ()))
    torch.testing.assert_close(encoder.encode_for_eval(tokens), encoded.sentence, rtol=0, atol=1e-6)
    with refuses("encoders.no_heads", "head_at_eval"):
        TransformerEncoder(str(tiny_bert(tmp_path)), head_at_eval=True).attach({})


@pytest.mark.slow
def test_freeze_stops_named_parts_and_no_others_and_keeps_dropout(tmp_path):
    encoder = TransformerEncoder(str(tiny_bert(tmp_path, layers=11)), freeze=["embeddings", "encoder.layer.1"])
    tokens = tokens_of(encoder)
    encoder.encode(tokens, encoder.embed(tokens)).sentence.pow(2).sum().backward()
    for name, parameter in encoder.backbone.named_parameters():
        frozen = name.startswith(("embeddings.", "encoder.layer.1."))
        assert (parameter.grad is None) == frozen, name
    encoder = TransformerEncoder(str(tiny_bert(tmp_path)), freeze=["embeddings"], dropout=0.5)
    tokens = tokens_of(encoder)
    assert (encoder.encode(tokens, encoder.embed(tokens)).embeddings == 0).any()


@pytest.mark.slow
def test_widths_length_limit_dropout_and_meaning_are_the_checkpoints(tmp_path):
    albert = TransformerEncoder(str(tiny_albert(tmp_path)))
    assert (albert.dim, albert.width, albert.max_length) == (16, 8, 64)
    assert TransformerEncoder(str(tiny_roberta(tmp_path))).max_length == 64
    encoder = TransformerEncoder("mini_en", pooling="mean")
    near = encoder.encode_for_eval(tokens_of(encoder, ["A man plays a guitar.", "A man is playing the guitar."]))
    far = encoder.encode_for_eval(tokens_of(encoder, ["A man plays a guitar.", "Parliament passed the law in 1921."]))
    assert torch.cosine_similarity(*near, dim=0) > torch.cosine_similarity(*far, dim=0) + 0.1
    encoder = TransformerEncoder(str(tiny_bert(tmp_path, hidden_dropout_prob=0.3)))
    assert encoder.dropout.p == encoder.backbone.encoder.layer[1].output.dropout.p == 0.3


@pytest.mark.parametrize("make", MAKERS)
def test_too_many_tokens_do_not_crash(tmp_path, make):
    encoder = TransformerEncoder(str(make(tmp_path)))
    tokens = tokens_of(encoder, [" ".join(["cat"] * 200)], 150)
    assert tokens.length == 150
    assert encoder.encode_for_eval(tokens).isfinite().all()


@pytest.mark.slow
def test_gradients_reach_augmented_vectors_and_every_weight(tmp_path):
    encoder = TransformerEncoder(str(tiny_bert(tmp_path)), freeze=["embeddings"])
    tokens = tokens_of(encoder)
    vectors = encoder.embed(tokens).requires_grad_()
    encoder.encode(tokens, vectors).sentence.pow(2).sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.abs().sum() > 0
    encoder = TransformerEncoder(str(tiny_bert(tmp_path)))
    encoder.attach({"mlp": Mlp()})
    tokens = tokens_of(encoder)
    encoder.encode(tokens, encoder.embed(tokens)).sentence.pow(2).sum().backward()
    assert [name for name, parameter in encoder.named_parameters() if parameter.grad is None] == []


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "mean", "last2"])
def test_layers_are_the_pooled_states_of_every_block(tmp_path, pooling):
    folder = tiny_bert(tmp_path, layers=3)
    encoder = TransformerEncoder(str(folder), pooling=pooling).eval()
    tokens = tokens_of(encoder)
    assert encoder.encode(tokens, encoder.embed(tokens)).layers is None
    encoder.expect(hidden_read=False, mini_batch_size=None)
    encoder.keep_layers()
    made = encoder.encode(tokens, encoder.embed(tokens))
    states = whole_forward(folder, tokens)
    literal = [slow_pool(pooling, states[: last + 1], tokens.mask, 0) for last in (1, 2, 3)]
    torch.testing.assert_close(made.layers, torch.stack(literal, dim=1), rtol=0, atol=1e-6)
    torch.testing.assert_close(made.layers[:, -1], made.sentence, rtol=0, atol=1e-6)


def test_layers_of_a_denoised_template_are_refused(tmp_path):
    encoder = TransformerEncoder(
        str(tiny_bert(tmp_path)), pooling="mask", template='"{text}" is {mask}', denoise="positions"
    )
    with refuses("encoders.changed_states", "denoise"):
        encoder.keep_layers()
