"""Fine-tuning for users: what conditions and decisions do, one run at a time against many, whom it is for."""

import pytest
import torch

from bo_robust.experiments.problems import make_conditions_problem as make
from bo_robust.experiments.problems.conditions.digits import rotated
from bo_robust.experiments.problems.conditions.fine_tuning import Z_BOUNDS, users

pytest.importorskip("sklearn")

GOOD, IDLE = (-2.0, -1.0, 0.0), (-12.0, -4.0, 0.0)
CLEAN, UNBALANCED, WRONG, TURNED = (0.0, 0.0, 0.0), (4.0, 0.0, 0.0), (0.0, 0.4, 0.0), (0.0, 0.0, 60.0)
RUNS = 8


@pytest.fixture(scope="module")
def problem(request):
    return make("fine_tuning", runs=RUNS, conditions=20, device=request.getfixturevalue("device"))


def inputs(problem, *rows):
    return problem.x_bounds.new_tensor([[*x, *z] for x, z in rows])


def by_hand(f, x, z, run):
    """One training run by torch's own optimiser and layers, the turning apart."""
    (rate, pull, smoothing), (imbalance, wrong, degrees) = x, z
    luck, rank, flip, shift, batches = f._draw(run)
    images, labels = (part.cpu() for part in f.pool)
    weight = luck - imbalance * rank[labels] / 9
    picked = torch.tensor(sorted(range(600), key=lambda i: -float(weight[i]))[:100])
    given = [(y + s) % 10 if u < wrong else y for y, s, u in zip(labels[picked], shift, flip, strict=True)]
    mine = rotated(images[picked], torch.tensor([degrees]).double())[0]
    W, b, V, c = (p.cpu() for p in f.pretrained)
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).double()
    state = {"0.weight": W.T, "0.bias": b[0], "2.weight": V.T, "2.bias": c[0]}
    net.load_state_dict(state)
    optimizer = torch.optim.SGD(net.parameters(), lr=10.0**rate, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(mine[batch]), torch.stack(given)[batch], label_smoothing=smoothing)
        for name, p in net.named_parameters():
            loss = loss + 0.5 * 10.0**pull * (p - state[name]).square().sum()
        loss.backward()
        optimizer.step()
    test, truth = (part.cpu() for part in f.test)
    return float((net(rotated(test, torch.tensor([degrees]).double())[0]).argmax(-1) == truth).double().mean())


def test_constants(problem):
    assert (problem.dim_x, problem.dim_z, problem.alpha) == (3, 3, 0.1)
    assert problem.points.shape == (20, 3)
    assert problem.environment.probabilities is None


def test_a_run_is_plain_sgd_on_the_users_images(problem):
    cases = [((-1.5, -1.0, 0.3), (2.0, 0.3, 40.0)), ((-2.5, -3.0, 0.0), (0.5, 0.1, 5.0))]
    found = problem.f.scores(inputs(problem, *cases), torch.tensor([5, 6])).tolist()
    assert found == pytest.approx([by_hand(problem.f, *cases[0], 5), by_hand(problem.f, *cases[1], 6)], abs=1.5 / 597)


def test_together_as_one_at_a_time_and_the_same_again(problem, device):
    X = inputs(problem, (GOOD, CLEAN), (GOOD, WRONG), ((-1.0, 0.0, 0.5), TURNED))
    together = problem.f(X)
    torch.testing.assert_close(torch.stack([problem.f(x) for x in X]), together, atol=1.5 / 597, rtol=0.0)
    torch.testing.assert_close(problem.f(X.reshape(3, 1, 6)).squeeze(1), together, atol=1.5 / 597, rtol=0.0)
    runs = torch.arange(RUNS)
    alone = problem.f.scores(X[:1].expand(RUNS, -1), runs)
    assert float(alone.mean()) == pytest.approx(float(together[0]), abs=1.5 / 597)
    assert len(set(alone.tolist())) > 1  # runs differ
    again = make("fine_tuning", runs=RUNS, conditions=20, device=device)
    assert torch.equal(again.points, problem.points)
    torch.testing.assert_close(again.f(X), together, atol=1.5 / 597, rtol=0.0)
    other = make("fine_tuning", runs=RUNS, conditions=20, device=device, seed=1)
    assert not torch.equal(other.points, problem.points)
    assert not torch.equal(other.f(X), together)


def test_every_condition_does_harm(problem):
    clean, *harmed = problem.f(
        inputs(problem, (GOOD, CLEAN), (GOOD, UNBALANCED), (GOOD, WRONG), (GOOD, TURNED))
    ).tolist()
    assert clean > 0.9
    assert all(value < clean - 0.02 for value in harmed), harmed


def test_without_learning_only_rotation_matters(problem):
    clean, unbalanced, wrong, turned = problem.f(
        inputs(problem, (IDLE, CLEAN), (IDLE, UNBALANCED), (IDLE, WRONG), (IDLE, TURNED))
    ).tolist()
    assert clean == unbalanced == wrong > 0.9
    assert turned < 0.4


def test_gentle_is_best_for_wrong_labels_and_bold_for_turned_images(problem):
    """The conflict that the problem is about."""
    gentle, bold = (-3.0, -1.0, 0.0), (-1.3, -1.3, 0.0)
    values = problem.f(inputs(problem, (gentle, WRONG), (bold, WRONG), (gentle, TURNED), (bold, TURNED))).tolist()
    assert values[0] > values[1] + 0.1
    assert values[3] > values[2] + 0.1


def test_held_out_users_are_others_of_the_same_distribution(problem):
    like = problem.x_bounds
    ours, held_out = users(4000, 0, like), users(4000, 0, like, "held out")
    assert torch.equal(users(20, 0, like), problem.points)
    assert not (ours[:, None, :] == held_out[None, :100, :]).all(-1).any()
    # E[u^p] = 1 / (p + 1), with standard error below 0.005.
    expected = like.new_tensor(Z_BOUNDS[1]) / like.new_tensor([2.0, 3.0, 4.0])
    for found in (ours, held_out):
        torch.testing.assert_close(found.mean(0), expected, rtol=0.1, atol=0.0)


def test_single_precision(device):
    problem = make("fine_tuning", runs=2, conditions=4, device=device, dtype=torch.float32)
    y = problem.f(problem.x_bounds.new_tensor([[*GOOD, *CLEAN]]))
    assert (y.dtype, y.shape) == (torch.float32, (1,))
    assert float(y) > 0.9
