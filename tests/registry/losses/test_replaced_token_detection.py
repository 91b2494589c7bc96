import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import BertModel

from cse_cli.training.checkpoint import load_method_state, method_state
from cse_cli.training.method import BoundView, Method, Term
from registry import HEADS, LOSSES
from registry.encoders.transformer import TransformerEncoder
from registry.losses import replaced_token_detection as module
from registry.losses.replaced_token_detection import FrozenGenerator, ReplacedTokenDetection
from registry.masking import Masking
from registry.tokens import Encoded, Tokens
from registry.vocabulary import HubVocabulary
from tests.registry.encoders.vectors import encoded
from tests.support.errors import refuses
from tests.support.tiny import SPECIALS, WORDS, tiny_bert, tiny_roberta, with_prediction_head

pytestmark = pytest.mark.slow

SIZE = len(SPECIALS) + len(WORDS)
ANCHOR, POSITIVE = [[2, 10, 11, 3], [2, 12, 3]], [[2, 10, 11, 3], [2, 12, 3]]

WANTED = [[9, 10, 20, 3], [2, 12, 21, 7], [2, 10, 11, 3], [2, 22, 3, 0]]
"""What the generator wants: not [CLS] in row 0, another [SEP] in row 1, a word at row 1's pad."""


class Says(nn.Module):
    """A generator that wants the given ids."""

    def __init__(self, ids):
        super().__init__()
        self.ids = ids

    def forward(self, ids, tokens):
        return nn.functional.one_hot(self.ids, SIZE).float() * 20.0


class Scores(nn.Module):
    """A discriminator with given scores; remembers what it was shown."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def require_width(self, width):
        pass

    def forward(self, tokens, first):
        self.seen = tokens, first
        return self.scores


def parts(folder, encoder=None, **params):
    model = with_prediction_head(tiny_bert(folder))
    encoder = TransformerEncoder(str(model), **(encoder or {}))
    return encoder, ReplacedTokenDetection(str(model), str(model), encoder, **params)


def view(rows, width=16):
    length = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    tokens = Tokens(ids, mask, torch.zeros_like(ids), torch.arange(length).expand(ids.shape))
    vectors = torch.randn(*ids.shape, width)
    return Encoded(vectors.mean(dim=1).requires_grad_(), vectors, vectors, tokens)


def fixed(folder, scores, **params):
    _, loss = parts(folder, **params)
    loss.generator, loss.discriminator = Says(torch.tensor(WANTED)), Scores(scores)
    return loss


def test_labels_by_hand(tmp_path):
    loss = fixed(tmp_path, torch.zeros(4, 4, 2))
    edited, replaced = loss.edited(Tokens.stack({"a": view(ANCHOR).tokens, "p": view(POSITIVE).tokens}))
    assert edited.ids.tolist() == [[2, 10, 20, 3], [2, 12, 21, 0], [2, 10, 11, 3], [2, 22, 3, 0]]
    assert replaced.long().tolist() == [[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]]


def test_only_hidden_places_change_where_asked(tmp_path):
    loss = fixed(tmp_path, torch.zeros(4, 4, 2), edit="masked_only", masking=0.0)
    tokens = Tokens.stack({"a": view(ANCHOR).tokens, "p": view(POSITIVE).tokens})
    edited, replaced = loss.edited(tokens)
    assert torch.equal(edited.ids, tokens.ids)
    assert not replaced.any()
    words = SimpleNamespace(mask=4, size=SIZE, specials={0, 1, 2, 3, 4})
    loss.masking = Masking("test", words, 1.0, 1.0, 0.0)
    edited, replaced = loss.edited(tokens)
    # Every word is hidden, no special token is: row 1 keeps its [SEP].
    assert edited.ids.tolist() == [[2, 10, 20, 3], [2, 12, 3, 0], [2, 10, 11, 3], [2, 22, 3, 0]]
    assert replaced.nonzero().tolist() == [[0, 2], [3, 1]]


@pytest.mark.parametrize(("pads", "places"), [(True, 16), (False, 14)])
def test_value_by_hand(tmp_path, pads, places):
    # Scores (0, ln 3) everywhere: "replaced" has probability 3/4. Three of the places are replaced.
    scores = torch.tensor([0.0, math.log(3)]).expand(4, 4, 2)
    value = fixed(tmp_path, scores, pads=pads)(view(ANCHOR), view(POSITIVE))
    expected = (3 * -math.log(3 / 4) + (places - 3) * -math.log(1 / 4)) / places
    assert value.item() == pytest.approx(expected, abs=1e-6)


def test_the_report_by_hand_and_views_of_unlike_length(tmp_path):
    scores = torch.zeros(4, 4, 2)
    scores[0, 2, 1] = scores[3, 1, 1] = scores[2, 0, 1] = scores[1, 3, 1] = 1.0  # two right, one wrong, one pad
    loss = fixed(tmp_path, scores)
    assert set(loss.report().values()) == {0.0}
    loss(view(ANCHOR), view(POSITIVE))
    assert loss.report() == pytest.approx({"replaced": 3 / 14, "accuracy_replaced": 2 / 3, "accuracy_kept": 10 / 11})
    _, loss = parts(tmp_path, masking=0.0)
    loss.eval()
    assert torch.isfinite(loss(view([[2, 10, 3]]), view([[2, 10, 11, 12, 3]])))


def test_the_authors_arithmetic(tmp_path):
    """DiffCSE's lines: h replaces the first vector of the edited ids, and one mean goes over all 2N·L places."""
    encoder, loss = (part.double().eval() for part in parts(tmp_path, masking=0.0))
    anchor, positive = encoded(encoder, 4, 1), encoded(encoder, 4, 2)
    tokens = Tokens.stack({"anchor": anchor.tokens, "positive": positive.tokens})
    edited, replaced = loss.edited(tokens)
    assert 0 < replaced.sum() < tokens.mask.sum() < replaced.numel()
    model, first = loss.discriminator.backbone, torch.cat([anchor.sentence, positive.sentence])
    states = torch.cat([first.unsqueeze(1), model.embeddings(input_ids=edited.ids)[:, 1:]], dim=1)
    hidden = (1.0 - tokens.mask[:, None, None].double()) * -10000.0
    for block in model.encoder.layer:
        states = block(states, attention_mask=hidden)
        states = states if isinstance(states, torch.Tensor) else states[0]
    expected = torch.nn.CrossEntropyLoss()(loss.discriminator.head(states).view(-1, 2), replaced.long().view(-1))
    found = loss(anchor, positive)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    sentences = [anchor.sentence, positive.sentence]
    theirs = torch.autograd.grad(expected, sentences, retain_graph=True)
    for mine, their in zip(torch.autograd.grad(found, sentences), theirs, strict=True):
        assert (mine - their).norm() <= 1e-6 * their.norm()


def test_gradient_does_not_reach_the_generator(tmp_path):
    encoder, loss = parts(tmp_path)
    loss(encoded(encoder, 4, 1), encoded(encoder, 4, 1)).backward()
    assert all(p.grad is None and not p.requires_grad for p in loss.generator.parameters())
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in loss.discriminator.head.parameters())
    blocks = [p for name, p in loss.discriminator.backbone.named_parameters() if "encoder.layer" in name]
    assert blocks
    assert all(p.grad is not None for p in blocks)
    assert encoder.backbone.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    assert all(a is not b for a in loss.discriminator.parameters() for b in encoder.parameters())


def test_both_copies_are_hidden_by_themselves(tmp_path):
    encoder, loss = parts(tmp_path, masking=0.5)
    seen = []
    loss.generator.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    torch.manual_seed(0)
    anchor = encoded(encoder, 4, 1)
    loss(anchor, anchor)
    (ids,) = seen
    first, second = ids.chunk(2)
    assert (first == encoder.vocabulary.mask).any()
    assert not torch.equal(first, second)


def test_sampling_follows_the_distribution(tmp_path):
    loss = fixed(tmp_path, torch.zeros(4, 4, 2), decode="sample", masking=0.0)
    tokens = Tokens.stack({"a": view(ANCHOR).tokens, "p": view(POSITIVE).tokens})
    assert loss.edited(tokens)[0].ids[0].tolist() == [2, 10, 20, 3]  # e²⁰ against 1
    odds = torch.full((4, 4, SIZE), -torch.inf)
    odds[..., 30], odds[..., 31] = math.log(0.75), math.log(0.25)
    loss.generator.forward = lambda ids, tokens: odds
    torch.manual_seed(0)
    drawn = torch.cat([loss.edited(tokens)[0].ids[:, 1] for _ in range(200)])
    assert set(drawn.tolist()) == {30, 31}
    assert (drawn == 30).float().mean().item() == pytest.approx(0.75, abs=0.06)


def test_the_condition_before_the_heads(tmp_path):
    model = str(with_prediction_head(tiny_bert(tmp_path)))
    for pooling in ("cls", "mean"):
        encoder = TransformerEncoder(model, pooling=pooling)
        plain = encoded(encoder.eval()).sentence
        encoder.attach({"mlp": HEADS["mlp"].build({})})
        loss = ReplacedTokenDetection(model, model, encoder, condition="pooled")
        loss.discriminator = Scores(torch.zeros(6, 9, 2))
        made = encoded(encoder.eval())
        loss.discriminator.scores = torch.zeros(6, made.tokens.length, 2)
        loss(made, made)
        assert torch.allclose(loss.discriminator.seen[1][:3], plain, atol=1e-6)
        assert not torch.allclose(made.sentence, plain, atol=1e-3)


def test_poolings_and_widths_that_do_not_fit_are_refused(tmp_path):
    with refuses("losses.unsupported_pooling", "last2"):
        parts(tmp_path, {"pooling": "last2"}, condition="pooled")
    narrow = str(with_prediction_head(tiny_bert(tmp_path, name="narrow")))
    wide = str(with_prediction_head(tiny_bert(tmp_path, name="wide", width=32)))
    with refuses("losses.width_mismatch", 16, 32):
        ReplacedTokenDetection(narrow, wide, TransformerEncoder(narrow))
    loss = ReplacedTokenDetection(wide, narrow, TransformerEncoder(narrow))  # the generator's is free
    with refuses("losses.width_mismatch", 8, 16):
        loss(view(ANCHOR, width=8), view(POSITIVE, width=8))


def test_checkpoints_exclude_only_the_generator(tmp_path):
    methods = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        encoder, loss = parts(tmp_path / str(seed))
        views = {name: BoundView("online", []) for name in ("anchor", "positive")}
        term = Term(LOSSES["replaced_token_detection"], 0.005, {name: name for name in views}, queue=False)
        methods.append(Method({"online": encoder}, views, None, {"rtd": loss}, {"rtd": term}))
    state = method_state(methods[0])
    assert not any("generator" in key for key in state)
    assert any(key.startswith("losses.rtd.discriminator.backbone.encoder") for key in state)
    assert not torch.equal(methods[0].losses["rtd"].discriminator.head.weight, state_head(methods[1]))
    load_method_state(methods[1], state)
    assert torch.equal(methods[0].losses["rtd"].discriminator.head.weight, state_head(methods[1]))


def state_head(method):
    return method.losses["rtd"].discriminator.head.weight


def test_devices_average_to_the_whole_batch(tmp_path, monkeypatch):
    encoder, loss = parts(tmp_path, masking=0.0)
    encoder.eval()
    loss.eval()
    one, other = encoded(encoder, 2, 1), encoded(encoder, 2, 4)
    assert one.tokens.length != other.tokens.length
    both = {"one": one.tokens, "other": other.tokens}
    whole = Encoded(torch.cat([one.sentence, other.sentence]), one.embeddings, one.hidden, Tokens.stack(both))
    expected = loss(whole, whole).item()
    longest = max(t.length for t in both.values())
    monkeypatch.setattr(module, "world_size", lambda: 2)
    monkeypatch.setattr(module, "all_devices", lambda _: torch.tensor([longest]))
    monkeypatch.setattr(module, "sum_devices", lambda count: 2 * count)
    assert (loss(one, one) + loss(other, other)).item() / 2 == pytest.approx(expected, rel=1e-5)


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
