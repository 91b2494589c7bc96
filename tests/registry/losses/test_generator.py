import pytest
import torch
from transformers import BertModel

from registry.encoders.transformer import TransformerEncoder
from registry.losses.replaced_token_detection import FrozenGenerator, ReplacedTokenDetection
from registry.vocabulary import HubVocabulary
from tests.registry.losses.detecting import ANCHOR, SIZE, encoded, parts, view
from tests.support.errors import refuses
from tests.support.tiny import tiny_bert, tiny_roberta, with_prediction_head

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("dropout", [True, False])
def test_the_generators_dropout_follows_its_switch(tmp_path, dropout):
    _, loss = parts(tmp_path, generator_dropout=dropout)
    for mode in (True, False):
        loss.train(mode)
        assert loss.generator.network.training is (mode and dropout)
        assert loss.discriminator.backbone.training is mode
    loss.train()
    tokens = view(ANCHOR).tokens
    first, second = (loss.generator(tokens.ids, tokens) for _ in range(2))
    assert torch.equal(first, second) is not dropout


def test_other_vocabularies_and_longer_texts_are_refused(tmp_path):
    bert, roberta = (str(with_prediction_head(make(tmp_path))) for make in (tiny_bert, tiny_roberta))
    encoder = TransformerEncoder(bert)
    for names in ((roberta, bert), (bert, roberta)):
        with refuses("losses.vocabulary_mismatch", roberta):
            ReplacedTokenDetection(*names, encoder)
    generator = FrozenGenerator(str(with_prediction_head(tiny_roberta(tmp_path))), "checkpoint", dropout=False)
    assert generator.longest == 64  # 66 positions, of which RoBERTa never uses two
    with refuses("losses.too_many_tokens", 64, 65, "data.max_length=64"):
        generator(torch.zeros(1, 65, dtype=torch.long), view([[2] * 65]).tokens)


def test_a_tokenizer_with_equal_ids_without_segments_is_accepted(tmp_path):
    """DistilBERT's beside BERT's."""
    bert, other = (with_prediction_head(tiny_bert(tmp_path, name=name)) for name in ("bert", "distil"))
    settings = other / "tokenizer_config.json"
    settings.write_text(settings.read_text().replace('"token_type_ids",', ""), encoding="utf-8")
    encoder = TransformerEncoder(str(bert))
    assert HubVocabulary(str(other)).fingerprint != encoder.vocabulary.fingerprint
    loss = ReplacedTokenDetection(str(other), str(bert), encoder)
    assert torch.isfinite(loss(encoded(encoder), encoded(encoder)))


def test_distilbert_generates(tmp_path):
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    bert, folder = with_prediction_head(tiny_bert(tmp_path)), tmp_path / "distil"
    shape = DistilBertConfig(vocab_size=SIZE, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=64)
    model = DistilBertForMaskedLM(shape).eval()
    model.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((bert / file).read_bytes())
    encoder = TransformerEncoder(str(bert))
    loss = ReplacedTokenDetection(str(folder), str(bert), encoder).eval()
    tokens = view(ANCHOR).tokens
    assert torch.allclose(
        loss.generator(tokens.ids, tokens), model(tokens.ids, attention_mask=tokens.mask).logits, atol=1e-6
    )
    assert torch.isfinite(loss(encoded(encoder), encoded(encoder)))


def test_a_generator_without_head_needs_generator_head(tmp_path):
    model = str(tiny_bert(tmp_path))
    encoder = TransformerEncoder(model)
    with refuses("losses.no_prediction_head", model, 'generator_head = "embeddings"'):
        ReplacedTokenDetection(model, model, encoder)
    loss = ReplacedTokenDetection(model, model, encoder, generator_head="embeddings").eval()
    tokens = view(ANCHOR).tokens
    own = BertModel.from_pretrained(model).eval()
    states = own(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
    expected = states @ own.embeddings.word_embeddings.weight.T
    assert torch.allclose(loss.generator(tokens.ids, tokens), expected, atol=1e-5)


def test_mini_en_decodes_by_its_embeddings_better_than_chance():
    """The recipe mini/diffcse_en relies on it."""
    generator = FrozenGenerator("mini_en", "embeddings", dropout=False)
    vocabulary = TransformerEncoder("mini_en").vocabulary
    texts = [
        "the city is the capital of the province and lies on the river .",
        "he was born in london and studied at the university of oxford .",
        "the album was released in the united states by the record company .",
    ]
    tokens = vocabulary.pad(vocabulary.ids(texts, 32))
    real = (tokens.mask == 1) & ~torch.isin(tokens.ids, torch.tensor(sorted(vocabulary.specials)))
    assert (generator(tokens.ids, tokens).argmax(dim=-1) == tokens.ids)[real].float().mean() > 0.9
