"""The parts of `transfer`: folds, protocols and the two classifiers, each against a slow literal version."""

import copy
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from torch import nn

from registry.evaluators import classifiers
from registry.evaluators.classifiers import (
    Fit,
    Labeled,
    LinearProbe,
    LockstepAdam,
    Problem,
    early_stopped,
    first_weights,
    logistic,
    stratified,
)
from tests.support.chosen import these

L2 = (1e-5, 1e-4, 1e-3, 1e-2)
SEED = 1111
SPLITS = {"all": ["all"], "folded": ["train", "test"], "given": ["train", "dev", "test"]}


def made(rows, classes, width=5, seed=0, scale=1.0):
    """Return float64 features and labels that they tell about three times in four."""
    draw = np.random.RandomState(seed)
    labels = np.concatenate([np.arange(classes), draw.randint(classes, size=rows - classes)])
    centers = draw.randn(classes, width)
    return torch.from_numpy(scale * (centers[labels] + draw.randn(rows, width))), labels


def in_splits(labels, kind, part=0.6):
    """Return the data set, its rows in order dealt to splits."""
    names = SPLITS[kind]
    ends = [round(len(labels) * end) for end in ([0, 1] if len(names) == 1 else np.linspace(part, 1, len(names)))]
    ends = ends if len(names) == 1 else [0, *ends]
    splits = {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(names)}
    return Labeled("made", splits, [str(label) for label in labels], [("",)] * len(labels))


@pytest.mark.parametrize(("rows", "classes", "folds"), [(60, 2, 3), (61, 6, 2), (137, 2, 10), (1000, 6, 10)])
def test_folds_are_scikit_learn_s(folds, classes, rows):
    labels = made(rows, classes, seed=rows)[1]
    found = stratified(labels, folds, SEED)
    with warnings.catch_warnings(action="ignore"):
        for fold, (_, test) in enumerate(StratifiedKFold(folds, shuffle=True, random_state=SEED).split(labels, labels)):
            assert np.flatnonzero(found == fold).tolist() == test.tolist()
    counts = np.array([[np.sum(labels[found == fold] == c) for fold in range(folds)] for c in range(classes)])
    assert np.ptp(counts, axis=1).max() <= 1
    assert counts.sum() == rows


class Spy:
    """Remembers what it was to fit, and is best at the third L2 weight."""

    def __init__(self):
        self.asked = []

    def __call__(self, features, labels, fits):
        self.asked.append(list(fits))
        return [[0.9 if l2 == L2[2] else 0.5 for l2 in fit.l2] for fit in fits]


def test_nested_protocol_does_not_train_on_test_rows():
    features, labels = made(97, 2)
    spy = Spy()
    assert LinearProbe(in_splits(labels, "all"), features, spy, L2, 5, SEED).accuracies() == (90.0, 90.0)
    inner, last = spy.asked
    assert [len(inner), len(last)] == [25, 5]
    tested = [set(fit.scored) for fit in last]
    assert set().union(*tested) == set(range(97))
    assert sum(map(len, tested)) == 97
    for outer, fit in enumerate(last):
        assert (set(fit.train), fit.stop, fit.l2) == (set(range(97)) - tested[outer], None, (L2[2],))
        own = inner[5 * outer : 5 * outer + 5]
        assert set().union(*(set(one.scored) for one in own)) == set(fit.train)
        for one in own:
            assert not (set(one.train) | set(one.scored) | set(one.stop)) & tested[outer]
            assert set(one.train) == set(fit.train) - set(one.scored)
            assert set(one.stop) == set(one.scored)


@pytest.mark.parametrize("kind", ["folded", "given"])
def test_no_test_row_of_a_test_split_is_seen_before_it_is_scored(kind):
    features, labels = made(97, 2)
    data, spy = in_splits(labels, kind), Spy()
    LinearProbe(data, features, spy, L2, 5, SEED).accuracies()
    inner, (last,) = spy.asked
    test = set(data.splits["test"])
    assert set(last.scored) == test
    assert set(last.train) == set(data.splits["train"])
    assert (last.stop is None) == (kind == "folded")
    assert all(not test & (set(fit.train) | set(fit.scored) | set(fit.stop)) for fit in inner)
    assert last.stop is None or set(last.stop) == set(data.splits["dev"])
    assert len(inner) == (5 if kind == "folded" else 1)


@pytest.mark.slow
def test_test_labels_change_nothing_that_is_chosen():
    features, labels = made(90, 2, seed=3)
    other = labels.copy()
    data = in_splits(labels, "folded")
    other[data.splits["test"]] = 1 - other[data.splits["test"]]
    for classifier in (logistic, partial(early_stopped, seed=SEED)):
        one = LinearProbe(data, features, classifier, L2, 4, SEED).accuracies()
        two = LinearProbe(in_splits(other, "folded"), features, classifier, L2, 4, SEED).accuracies()
        assert one.dev == two.dev
        assert one.test + two.test == pytest.approx(100.0)


@pytest.mark.parametrize(("shares", "wanted"), [
    ([[0.50001, 0.50002, 0.4, 0.3]], 1e-5), ([[0.5, 0.51, 0.51, 0.3]], 1e-4),
    ([[0.5, 0.7, 0.1, 0.6], [0.5, 0.1, 0.1, 0.6]], 1e-2),
])  # fmt: skip
def test_ties_of_two_decimals_go_to_the_first_weight(shares, wanted):
    features, labels = made(10, 2)
    assert LinearProbe(in_splits(labels, "all"), features, Spy(), L2, 2, SEED)._best(shares)[0] == wanted


def adam(features, labels, fit, l2, seed=SEED):
    """Return the share that SentEval's classifier, written out, gets right, and how many passes it took."""
    shuffles = np.random.RandomState(seed)
    torch.manual_seed(seed)
    layer = nn.Linear(features.shape[1], int(labels.max()) + 1).to(features.dtype)
    descent = torch.optim.Adam(layer.parameters(), weight_decay=l2)
    wanted, train, stop = torch.from_numpy(labels), fit.train, fit.stop
    if stop is None:
        order = shuffles.permutation(len(train))
        held = int(0.05 * len(train))
        train, stop = train[order[held:]], train[order[:held]]
    best, failures, passes, going = -1.0, 0, 0, True

    def share(rows):
        with torch.no_grad():
            return float((layer(features[rows]).argmax(dim=1) == wanted[rows]).sum()) / len(rows)

    while going and passes <= 200:
        for _ in range(4):
            order = shuffles.permutation(len(train))
            for start in range(0, len(train), 64):
                batch = train[order[start : start + 64]]
                descent.zero_grad()
                nn.functional.cross_entropy(layer(features[batch]), wanted[batch]).backward()
                descent.step()
        passes += 4
        if (found := share(stop)) > best:
            best, kept = found, copy.deepcopy(layer.state_dict())
        else:
            going = failures < 5
            failures += 1
    layer.load_state_dict(kept)
    return share(fit.scored), passes


def literal(data, features, labels, folds, train_and_score):
    """Return dev and test accuracy × 100 by SentEval's protocols, one classifier after the other."""

    def cross(rows):
        splitter = StratifiedKFold(folds, shuffle=True, random_state=SEED)
        parts = [(rows[a], rows[b]) for a, b in splitter.split(rows, labels[rows])]
        means = [np.mean([train_and_score(Fit(a, b, b, ()), l2) for a, b in parts]) for l2 in L2]
        return L2[int(np.argmax(np.round(100 * np.array(means), 2)))], max(means)

    splits = data.splits
    if "dev" in splits:
        shares = [train_and_score(Fit(splits["train"], splits["dev"], splits["dev"], ()), l2) for l2 in L2]
        l2 = L2[int(np.argmax(np.round(100 * np.array(shares), 2)))]
        last = train_and_score(Fit(splits["train"], splits["test"], splits["dev"], ()), l2)
        return 100 * max(shares), 100 * last
    if "test" in splits:
        l2, share = cross(splits["train"])
        return 100 * share, 100 * train_and_score(Fit(splits["train"], splits["test"], None, ()), l2)
    rows, dev, test = splits["all"], [], []
    for a, b in StratifiedKFold(folds, shuffle=True, random_state=SEED).split(rows, labels):
        l2, share = cross(rows[a])
        dev.append(100 * share)
        test.append(100 * train_and_score(Fit(rows[a], rows[b], None, ()), l2))
    return np.mean(dev), np.mean(test)


@pytest.mark.parametrize(("kind", "rows", "classes", "folds"), these(
    [("all", 120, 3, 2), ("folded", 131, 4, 3), ("given", 150, 2, 2)],
    [("all", 83, 2, 3), ("all", 120, 3, 2), ("folded", 190, 2, 4), ("folded", 131, 4, 3), ("given", 150, 2, 2)],
))  # fmt: skip
@pytest.mark.slow
def test_senteval_s_classifier_and_protocols_written_out(monkeypatch, kind, rows, classes, folds):
    features, labels = made(rows, classes, seed=rows)
    data = in_splits(labels, kind)
    wanted = literal(data, features, labels, folds, lambda fit, l2: adam(features, labels, fit, l2)[0])
    monkeypatch.setattr(classifiers, "TOGETHER", 2)
    found = LinearProbe(data, features, partial(early_stopped, seed=SEED), L2, folds, SEED).accuracies()
    assert found == pytest.approx(wanted, abs=1e-9)


def scikit(features, labels, train, l2):
    """Return scikit-learn's (D + 1, O) weights at the optimum; two opposite outputs shrink half as much as one."""
    padded = np.c_[features, np.ones(len(features))]
    strength = (1 if labels.max() > 1 else 2) / (len(train) * l2)
    fitted = LogisticRegression(C=strength, fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    return fitted.fit(padded[train], labels[train]).coef_.T


@pytest.mark.parametrize("classes", [2, 4])
def test_the_optimum_has_no_gradient(monkeypatch, classes):
    """Of the objective as the docstring writes it, with an output for each class."""
    features, labels = made(70, classes, seed=2)
    train, targets = np.arange(0, 70, 2), torch.from_numpy(labels)
    monkeypatch.setattr(classifiers, "TOLERANCE", 1e-20)
    monkeypatch.setattr(classifiers, "MAX_STEPS", 20_000)
    problem = Problem(features, targets)
    solved = problem.solve([(train, 0.01)])[:, 0]
    weights = torch.cat([-solved / 2, solved / 2], dim=1) if classes == 2 else solved
    weights.requires_grad_()
    loss = nn.functional.cross_entropy((problem.rows @ weights)[train], targets[train]) + 0.005 * weights.square().sum()
    (gradient,) = torch.autograd.grad(loss, weights)
    assert gradient.abs().max() < 1e-9


@pytest.mark.parametrize(("kind", "rows", "classes", "folds"), [
    ("all", 61, 2, 2), ("folded", 97, 2, 3), ("folded", 131, 4, 3), ("given", 150, 3, 2),
])  # fmt: skip
@pytest.mark.slow
def test_all_folds_together_are_scikit_learn_s_one_by_one(monkeypatch, kind, rows, classes, folds):
    features, labels = made(rows, classes, seed=rows)
    data, padded = in_splits(labels, kind), np.c_[features, np.ones(rows)]

    def share(fit, l2):
        scores = padded[fit.scored] @ scikit(features, labels, fit.train, l2)
        guess = scores.argmax(axis=1) if classes > 2 else scores[:, 0] > 0
        return np.mean(guess == labels[fit.scored])

    monkeypatch.setattr(classifiers, "TOLERANCE", 1e-14)
    found = LinearProbe(data, features, logistic, L2, folds, SEED).accuracies()
    assert found == pytest.approx(literal(data, features, labels, folds, share), abs=1e-9)


@pytest.mark.slow
def test_parts_of_the_work_change_nothing(monkeypatch):
    features, labels = made(120, 3)
    fits = [Fit(np.arange(start, 120), np.arange(40), np.arange(20), L2) for start in range(6)]
    both = logistic, partial(early_stopped, seed=SEED)
    monkeypatch.setattr(classifiers, "TOGETHER", 50)
    wanted = [classifier(features, labels, fits) for classifier in both]
    monkeypatch.setattr(classifiers, "TOGETHER", 1)
    monkeypatch.setattr(classifiers, "MAX_SCORES", 2000)
    assert [classifier(features, labels, fits) for classifier in both] == wanted


def test_the_count_of_failures_is_never_set_back_and_passes_end(monkeypatch):
    """All right from the first look on: one best, five failures forgiven, the sixth ends it; or the passes do."""
    labels = np.array([0, 1] * 50)
    features = torch.from_numpy(labels * 2.0 - 1).unsqueeze(1).expand(-1, 64).contiguous()
    fit = Fit(np.arange(90), np.arange(90, 100), np.arange(90, 100), (1e-3,))
    walk = LockstepAdam(padded(features), torch.from_numpy(labels), [fit], SEED)
    assert walk.shares() == [[1.0]]
    assert walk.steps == 7 * 4 * 2  # two batches a pass
    monkeypatch.setattr(classifiers, "MAX_PASSES", 8)
    walk = LockstepAdam(padded(features), torch.from_numpy(labels), [fit], SEED)
    walk.shares()
    assert walk.steps == 3 * 4 * 2


def padded(features):
    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)


@pytest.mark.parametrize(("width", "classes"), [(1, 2), (17, 3), (384, 2), (1536, 6)])
def test_first_weights_are_a_linear_layer_s(width, classes):
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        layer = nn.Linear(width, classes)
    wanted = torch.cat([layer.weight.T, layer.bias[None]]).detach()
    assert torch.allclose(first_weights(width, classes, SEED), wanted, rtol=1e-6, atol=0)
