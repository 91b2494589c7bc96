from functools import partial

import numpy as np
import pytest
import torch

from registry.distributed import rank
from registry.heads.group_whitening import GroupWhitening
from registry.testing.materials import WidthOnly, draw
from tests.registry.heads.literal import fit_head
from tests.support.errors import refuses
from tests.support.processes import on_ranks

fitted = partial(fit_head, GroupWhitening)


def literal(rows, groups, order, epsilon):
    """Return the rows whitened group by group, by numpy's inverse square root of each covariance."""
    rows = np.asarray(rows)
    out = np.empty_like(rows)
    size = rows.shape[1] // groups
    for group in range(groups):
        places = order[group * size : (group + 1) * size]
        part = rows[:, places] - rows[:, places].mean(0)
        covariance = part.T @ part / len(rows)
        values, vectors = np.linalg.eig(covariance + epsilon * np.eye(size))
        out[:, places] = part @ (vectors / np.sqrt(values)) @ np.linalg.inv(vectors)
    return out


@pytest.mark.parametrize(("groups", "width"), [(1, 4), (2, 6), (6, 6)])
def test_each_view_by_itself_in_a_random_order(groups, width):
    pooled = draw(0, 20, width).double()
    head = fitted(width, groups=groups, epsilon=1e-3)
    torch.manual_seed(5)
    made = head(pooled, (("anchor", 12), ("positive", 8)))
    torch.manual_seed(5)
    orders = [torch.rand(width).argsort().tolist() if groups > 1 else list(range(width)) for _ in range(2)]
    expected = [literal(pooled[:12], groups, orders[0], 1e-3), literal(pooled[12:], groups, orders[1], 1e-3)]
    assert np.allclose(made.numpy(), np.concatenate(expected), atol=1e-9)


def the_authors_code(pooled, views, groups, orders):
    """WhitenedCSE's head by loops: copies of a sentence are next to each other, and thirds of the rows are whitened.

    Args:
        pooled: (views · N, D), view by view, as the head receives them.
        views: Number of copies of each sentence.
        groups: Number of groups of dimensions.
        orders: Permutation of the dimensions, part by part.
    """
    count, width = len(pooled) // views, pooled.shape[1]
    rows = [pooled[copy * count + sentence] for sentence in range(count) for copy in range(views)]
    made = []
    for part, order in enumerate(orders):
        third = torch.stack(rows[part * count : (part + 1) * count])
        whole = torch.zeros(count, width, dtype=pooled.dtype)
        for group in torch.as_tensor(order).view(groups, -1):
            centered = third[:, group] - third[:, group].mean(0)
            variances, directions = torch.linalg.eigh((centered.T @ centered / count).detach())
            whole[:, group] = centered @ directions @ torch.diag(variances.rsqrt()) @ directions.T
        made += whole.unbind()
    return torch.stack([made[sentence * views + copy] for copy in range(views) for sentence in range(count)])


def test_parts_of_the_batch_by_sentence_are_the_authors_code():
    pooled = draw(0, 24, 6).double().requires_grad_()
    head = fitted(6, groups=2, rows="sentences", epsilon=0.0)
    torch.manual_seed(5)
    made = head(pooled, (("anchor", 8), ("first", 8), ("second", 8)))
    torch.manual_seed(5)
    expected = the_authors_code(pooled, 3, 2, [torch.rand(6).argsort() for _ in range(3)])
    torch.testing.assert_close(made, expected, rtol=1e-6, atol=1e-9)
    weights = draw(3, 24, 6).double()
    found, wanted = (torch.autograd.grad((each * weights).sum(), [pooled])[0] for each in (made, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_the_gradient_with_and_without_the_covariance():
    pooled = draw(0, 8, 4).double().requires_grad_()
    whole = fitted(4, groups=2, detach_statistics=False).eval()
    assert torch.autograd.gradcheck(lambda x: whole(x, ()), [pooled])
    detached = fitted(4, groups=2).eval()
    with torch.no_grad():  # with a constant covariance the map is linear: its matrix is measured column by column
        linear = literal(np.eye(8) @ pooled.detach().numpy(), 2, range(4), 1e-5)
    weights = draw(3, 8, 4).double()
    (found,) = torch.autograd.grad((detached(pooled, ()) * weights).sum(), [pooled])
    centered = pooled.detach() - pooled.detach().mean(0)
    transform = torch.linalg.lstsq(centered, torch.from_numpy(linear)).solution
    expected = (weights - weights.mean(0)) @ transform.T
    assert torch.allclose(found, expected, atol=1e-8)
    # Two dimensions, both ±2 and uncorrelated: variance 4, half as long afterwards.
    pooled = torch.tensor([[3.0, 2.0], [3.0, -2.0], [-1.0, 2.0], [-1.0, -2.0]])
    made = fitted(2, groups=1, epsilon=0.0)(pooled, ())
    assert torch.allclose(made, torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]), atol=1e-6)


def test_groups_and_views_that_do_not_fit_are_refused():
    with refuses("heads.indivisible_width", "groups = 128", 192, "set groups = 96"):
        fitted(192)
    with refuses("heads.batch_too_small", "train.batch_size"):
        fitted(4, groups=2)(draw(0, 1, 4), ())
    with refuses("heads.indivisible_width", "groups = 6"):
        GroupWhitening(groups=2**62).fit(6, WidthOnly(6))
    with refuses("heads.uneven_views", "[12, 8]", 'rows = "views"'):
        fitted(6, groups=2, rows="sentences")(draw(0, 20, 6), (("anchor", 12), ("positive", 8)))


def shares() -> tuple[list[tuple[torch.Tensor, torch.Tensor]], list[int]]:
    """Return values and gradient of all devices' sum for a process's half of the rows, and the order that it draws."""
    rows = draw(0, 12, 6).double()[rank() * 6 : rank() * 6 + 6].requires_grad_()
    found, head = [whitened(rows, detach) for detach in (True, False)], fitted(8, groups=2)
    torch.manual_seed(rank())  # random numbers of its own
    return found, head._order(8, torch.device("cpu")).tolist()


def whitened(rows, detach):
    made = fitted(6, groups=2, shuffle=False, detach_statistics=detach)(rows, ())
    (gradient,) = torch.autograd.grad((made**3).sum(), [rows])
    return made.detach(), gradient


@pytest.mark.process
def test_two_processes_are_one_and_draw_one_order():
    (first, order), (second, other) = on_ranks(shares)
    rows = draw(0, 12, 6).double().requires_grad_()
    for detach, *parts in zip((True, False), first, second, strict=True):
        for expected, *found in zip(whitened(rows, detach), *parts, strict=True):
            assert torch.allclose(torch.cat(found), expected, atol=1e-9)
    assert order == other
    assert sorted(order) == list(range(8))
