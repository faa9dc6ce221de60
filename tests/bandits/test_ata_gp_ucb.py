import math
import warnings
from functools import partial
from itertools import pairwise

import pytest
import torch

from benchmarks.methods.published import PublishedATATruncation, PublishedATAWidth
from bo_robust.bandits import ATAGPUCB
from bo_robust.bandits.posteriors import reward_lists, whitening
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.confidence import ATAFourierWidth, ATANystromWidth, ConstantWidth, RandomizedWidth
from bo_robust.confidence.truncation import (
    ATAFourierTruncation,
    ATANystromTruncation,
    NoTruncation,
    TGPTruncation,
)
from bo_robust.features import FourierFeatures
from bo_robust.features.leverage import draw_dictionary, keep_probability
from bo_robust.utils.covariance import Matern, SquaredExponential
from bo_robust.utils.random import spread
from tests.bandits import naive
from tests.bandits.problems import NothingIsRead, line

BOX = ((0.0, 1.0),)
ROOTS = pytest.mark.parametrize("root", whitening.ROOTS)


def square(n, device):
    return torch.rand(n, 2, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(device)


def heavy(T, s, device, df=1.5, seed=0):
    g = torch.Generator().manual_seed(seed)
    normal, uniform = torch.randn(T, s, generator=g, dtype=torch.float64), torch.rand(T, s, generator=g).double()
    uniforms = torch.rand(T, s, generator=g, dtype=torch.float64)
    return (normal * uniform.pow(-1 / df)).to(device), uniforms.to(device)


class NaiveATA:
    """Algorithm 2 of one trial, line by line: rebuilds everything from the history each round."""

    def __init__(self, K, noise_var, root):
        self.K, self.noise_var, self.root = K, noise_var, root
        self.x, self.y = [], []
        self.mean, self.variance = torch.zeros(K.shape[0]).to(K), K.diagonal().clone()

    def embed(self, uniform):
        """Nyström features of all arms: every past point drawn with 1.5 sigma^2, copies as one arm."""
        n = self.K.shape[0]
        counts = torch.bincount(torch.tensor(self.x), minlength=n).to(self.K).unsqueeze(0)
        p = keep_probability(self.variance.unsqueeze(0), 1.5, counts)
        members = draw_dictionary(p, spread(uniform, n))[0].nonzero().squeeze(1)
        self.size = len(members)
        return naive.nystrom(self.K, members)

    def observe(self, x, y, level, uniform):
        self.x.append(x)
        self.y.append(y)
        phi = self.embed(uniform)
        observed = self.x, self.K.new_tensor(self.y)
        given = self.noise_var, level(max(self.size, 1)), self.root
        self.mean, self.variance, products = naive.truncated(phi, *observed, *given)
        self.gap = float((products - 1.0).abs().min())
        self.variance += self.K.diagonal() - phi.square().sum(1)


TAIL = {"moment_bound": 0.5, "alpha": 0.9, "horizon": 60}
RULES = {  # width and level
    "theorem": (
        partial(ATANystromWidth, 1.0, noise_var=1.0, delta=0.1, epsilon=0.5, **TAIL),
        partial(ATANystromTruncation, delta=0.1, **TAIL),
    ),
    "published": (
        partial(PublishedATAWidth, 1.0, noise_var=1.0, **TAIL),
        partial(PublishedATATruncation, **TAIL),
    ),
}


@ROOTS
@pytest.mark.parametrize("rule", RULES)
def test_a_run_is_algorithm_2(reads, rule, root, device):
    """Width and level are those of the size of the present dictionary."""
    (width, level), s, T = RULES[rule], 2, 60
    X = square(25, device)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.2), X)
    algorithm = ATAGPUCB(width(num_features=None), level(num_features=None), NystromDictionary(1.5), root)
    noise = torch.tensor([0.05, 1.0], dtype=torch.float64, device=device)
    state = algorithm.init(kernel, noise, s)
    written_out = [NaiveATA(kernel.matrix, float(noise_var), root) for noise_var in noise]
    f, (eta, uniforms) = torch.sin(5 * X[:, 0]), heavy(T, s, device)
    levels, sizes, lost, tol = [], [1] * s, 0, 1e-6 if root == "symmetric" and reads else 1e-9
    for t in range(T):
        selection = algorithm.select(state, uniforms[t])
        assert selection.width.expand(s).tolist() == pytest.approx([width(num_features=m)(t + 1) for m in sizes])
        arms = selection.arms
        y = f[arms] + eta[t]
        for one, arm, w in zip(written_out, arms, selection.width.expand(s), strict=True):
            bound = one.mean + w * one.variance.clamp(min=0).sqrt()
            # equal to rounding where several arms are best, as in the first round
            assert float(bound.max() - bound[arm]) < 1e-5 * float(bound.abs().max())
        info = algorithm.observe(state, arms, y, uniforms[t])
        assert bool(info.ok.all())
        lost += int(info.truncated.sum())
        for i, one in enumerate(written_out):
            one.observe(int(arms[i]), float(y[i]), lambda m, t=t: level(num_features=m)(t + 1), uniforms[t, i : i + 1])
            assert one.gap > 1e-6  # no product so near to its level that rounding decides
            # no less than that of f: in the first rounds truncation leaves a mean of nearly zero
            scale = max(float(f.abs().max()), float(one.mean.abs().max()))
            torch.testing.assert_close(state.posterior.mean[i], one.mean, rtol=0, atol=tol * scale)
            torch.testing.assert_close(state.posterior.variance[i], one.variance, rtol=tol, atol=1e-9)
        sizes = [max(one.size, 1) for one in written_out]
        levels.append(state.posterior.level.tolist())
        assert levels[-1] == pytest.approx([level(num_features=m)(t + 1) for m in sizes])
    assert lost > 5
    assert any(after < before for before, after in pairwise(levels))


@pytest.mark.parametrize(
    ("redraw", "rounds"), [(1.0, list(range(1, 13))), (1.5, [1, 2, 3, 5, 8, 12]), (2.0, [1, 2, 4, 8])]
)
def test_redraw_schedule(redraw, rounds, monkeypatch, device):
    """Between its rounds features stay, and no uniform is needed."""
    kernel = ArmKernel.from_covariance(SquaredExponential(0.3), square(20, device))
    algorithm = ATAGPUCB(ConstantWidth(1.0), NoTruncation(), NystromDictionary(1.0, redraw))
    state, drawn, draw = algorithm.init(kernel, 0.1, 2), [], NystromDictionary.draw

    def watched(*args, **options):
        drawn.append(state.round + 1)
        return draw(*args, **options)

    monkeypatch.setattr(NystromDictionary, "draw", watched)
    eta, uniforms = heavy(12, 2, device)
    for t in range(12):
        before = state.posterior.whitening.table
        given = uniforms[t] if t + 1 in rounds else None
        algorithm.observe(state, algorithm.select(state, uniforms[t]).arms, eta[t], given)
        assert (state.posterior.whitening.table is before) == (given is None)
    assert drawn == rounds


@pytest.mark.parametrize("reads", [False], indirect=True)
@pytest.mark.parametrize(
    "algorithm",
    [
        ATAGPUCB(RandomizedWidth(40), TGPTruncation(0.05, 0.7), FourierFeatures(0.2, 10, BOX), root, rule)
        for root in whitening.ROOTS
        for rule in ("zero", "clip")
    ],
    ids=lambda a: f"{a.root} {a.rule}",
)
def test_no_round_waits_for_the_device_but_to_make_room(algorithm, reads, monkeypatch):
    """What CUDA runs, watched on the CPU. The lists' lengths are looked at every capacity / 2 rounds or less often."""
    watch, looks, make_room = NothingIsRead(), [], reward_lists.make_room

    def allowed(lists):
        looks.append(lists.values.shape[2])
        watch.allowed = True
        make_room(lists)
        watch.allowed = False

    monkeypatch.setattr(reward_lists, "make_room", allowed)
    monkeypatch.setattr(whitening, "CHOLESKY_REFRESH", 16)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.2), line(40, "cpu"))
    state = algorithm.init(kernel, 0.1, 4)
    eta, uniforms = heavy(100, 4, "cpu")
    eta[7, 2] = math.nan
    with watch:
        for t in range(100):
            algorithm.observe(state, algorithm.select(state, uniforms[t]).arms, eta[t], uniforms[t])
    assert state.round == 100
    assert 1 <= len(looks) <= 100 / (reward_lists.FIRST_CAPACITY / 2 - 1)
    assert int(state.posterior.lists.size.max()) > 0  # something was truncated


def cover(f, draw, v, alpha, root, T=200, nodes=16, delta=0.1):
    """Shares of trials whose intervals hold at all arms in all rounds: at the theorem's width, and at 1 % of it."""
    s, n = f.shape
    X = line(n, f.device)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.3), X)
    weights = torch.linalg.lstsq(kernel.matrix + 1e-10 * torch.eye(n).to(f), f.T).solution
    norm = float((f.T * weights).sum(0).clamp(min=0).sqrt().max())
    width = ATAFourierWidth(norm, v, alpha, 1.0, delta, T, nodes)
    algorithm = ATAGPUCB(width, ATAFourierTruncation(v, alpha, delta, T, nodes), FourierFeatures(0.3, nodes, BOX), root)
    state = algorithm.init(kernel, 1.0, s)
    held, held_narrow = (torch.ones(s, dtype=torch.bool, device=f.device) for _ in "ab")
    truncated_ones = 0
    for _ in range(T):
        u = torch.full((s,), 0.5, dtype=torch.float64, device=f.device)
        selection = algorithm.select(state, u)
        error, sigma = (f - state.posterior.mean).abs(), state.posterior.variance.sqrt()
        held &= (error <= selection.width * sigma + 1e-6).all(1)
        held_narrow &= (error <= 0.01 * selection.width * sigma + 1e-6).all(1)
        arms = selection.arms
        info = algorithm.observe(state, arms, draw(f.gather(1, arms.unsqueeze(1)).squeeze(1)))
        truncated_ones += int(info.truncated.sum())
    assert truncated_ones > 0
    return float(held.double().mean()), float(held_narrow.double().mean())


def test_intervals_cover_with_student_t_noise(device):
    """Lemma 1 with t(3) noise, alpha = 1 and v = max f^2 + 3: 200 trials, delta = 0.1."""
    g = torch.Generator().manual_seed(0)
    a = 2 * torch.rand(200, 25, generator=g, dtype=torch.float64) - 1
    X = line(25, "cpu")
    f = a @ SquaredExponential(0.3)(X, X)
    chi = torch.distributions.Chi2(torch.tensor(3.0, dtype=torch.float64))

    def draw(at):
        z = torch.randn(at.shape, generator=g, dtype=torch.float64)
        with torch.random.fork_rng():
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=g)))
            return at + (z / (chi.sample(at.shape) / 3).sqrt()).to(at)

    wide, narrow = cover(f.to(device), draw, float(f.square().max()) + 3.0, 1.0, "symmetric")
    assert wide >= 0.9
    assert narrow < 0.5


def test_intervals_cover_with_pareto_rewards(device):
    """Lemma 1 with Pareto rewards of shape 2 and scale f / 2, mean f: E y^1.9 = 20 (f / 2)^1.9."""
    g = torch.Generator().manual_seed(1)
    a = torch.rand(200, 25, generator=g, dtype=torch.float64)
    X = line(25, "cpu")
    f = 0.2 * a @ SquaredExponential(0.3)(X, X)
    assert float(f.min()) > 0

    def draw(at):
        u = 1.0 - torch.rand(at.shape, generator=g, dtype=torch.float64)
        return 0.5 * at * u.pow(-0.5).to(at)

    wide, narrow = cover(f.to(device), draw, 20.0 * float(f.max() / 2) ** 1.9, 0.9, "cholesky")
    assert wide >= 0.9
    assert narrow < 0.5


def test_features_of_another_kernel_give_a_warning():
    algorithm = ATAGPUCB(ConstantWidth(2.0), TGPTruncation(1.0, 1.0), FourierFeatures(0.2, 16, BOX))
    rough = ArmKernel.from_covariance(Matern(0.5, 0.2), line(40, "cpu"))
    with pytest.warns(UserWarning, match="the features miss the kernel of the arms by up to 0."):
        algorithm.init(rough, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        algorithm.init(ArmKernel.from_covariance(SquaredExponential(0.2), line(40, "cpu")), 0.1)
