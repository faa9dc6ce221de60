# %% [markdown]
# # Landing in the wind
#
# A moon lander is steered by a small program of six gains. They can be tuned so that the landing is good **on
# average** over winds, or so that it is still good in **bad wind**. These are different aims, and a design that is
# best for one need not be best for the other. This tutorial tunes the gains twice, with the same loop and the same
# number of flights, asks whether a crash is an outlier, and then looks at both designs in fresh weather.
#
# The simulator is `LunarLander-v3` of gymnasium: `pip install "gymnasium[box2d]"`. Where it is missing, this script
# says so and ends.

# %%
import importlib.util

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

from bo_robust import RobustGP, ValueAtRiskUCB
from bo_robust.acquisition import recommend_design
from bo_robust.risk_measures.environments import FiniteEnvironment
from bo_robust.risk_measures.functionals import Mean, ValueAtRisk

SIMULATOR = all(importlib.util.find_spec(name) is not None for name in ("gymnasium", "Box2D"))
DESIGNS, LOOKS = 16, 50
INITIAL, ROUNDS, FLIGHTS, FRESH = 16, 25, 5, 200
if not SIMULATOR:
    print('gymnasium[box2d] is not installed: pip install "gymnasium[box2d]"')

# %% [markdown]
# ## The problem
#
# The design x is the six gains of gymnasium's own heuristic, each between a third and three times what its authors
# chose, on a logarithmic scale: 0.5 is the heuristic as it comes. The condition z is the power of the wind, from calm
# (0) to 20, all equally probable. What is observed is the mean return of a few flights, divided by 100. Every flight
# starts anew, in other terrain, so observations are noisy.

# %%
GAINS = torch.tensor([0.5, 1.0, 0.55, 0.5, 1.0, 0.5], dtype=torch.float64)  # of the heuristic
WINDS = torch.linspace(0, 1, 21, dtype=torch.float64).unsqueeze(-1)  # times 20
environment = FiniteEnvironment(WINDS)


def action(state, gains):
    """Which engine to fire: gymnasium's heuristic with its numbers as arguments."""
    x, y, speed, fall, angle, turn, left, right = state.tolist()
    tilt = min(max(gains[0] * x + gains[1] * speed, -0.4), 0.4)
    turning = (tilt - angle) * gains[3] - turn * gains[4]
    lifting = (gains[2] * abs(x) - y) * 0.5 - fall * gains[5]
    if left or right:  # a leg has touched the ground
        turning, lifting = 0.0, -fall * gains[5]
    if lifting > abs(turning) and lifting > 0.05:
        return 2
    return 3 if turning < -0.05 else 1 if turning > 0.05 else 0


def fly(x, wind, seed):
    """Return of one flight; its terrain, start and gusts follow from the seed."""
    import gymnasium

    gains = (GAINS * 3.0 ** (2.0 * x - 1.0)).tolist()
    env = gymnasium.make("LunarLander-v3", enable_wind=True, wind_power=20.0 * wind, turbulence_power=1.5)
    state, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        state, reward, ended, out_of_time, _ = env.step(action(state, gains))
        total, over = total + float(reward), ended or out_of_time
    return total / 100.0


# %% [markdown]
# ## Do the two aims disagree?
#
# Sixteen designs at random fly the same fifty flights, in winds drawn evenly. For every pair of designs the mean and
# the 5 % quantile of the returns each say which of the two is better. (A quantile of fifty flights rests on the worst
# three, so some of the disagreement is chance.)


# %%
def weather(flights, seed):
    """Winds and seeds of some flights, the same for every design."""
    winds = torch.rand(flights, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
    return [(wind, 10**6 * seed + i) for i, wind in enumerate(winds)]


def returns_of(x, flights):
    """Of a design in given weather."""
    return torch.tensor([fly(x, wind, seed) for wind, seed in flights], dtype=torch.float64)


designs = torch.quasirandom.SobolEngine(6, scramble=True, seed=1).draw(DESIGNS, dtype=torch.float64)
if SIMULATOR:
    table = torch.stack([returns_of(x, weather(LOOKS, seed=1)) for x in designs])
    mean, bad = table.mean(1), table.quantile(0.05, dim=1)
    pairs = torch.combinations(torch.arange(DESIGNS))
    opposite = sum(bool((mean[i] - mean[j]) * (bad[i] - bad[j]) < 0) for i, j in pairs.tolist())
    print(f"mean and 5 % quantile order {opposite} of {len(pairs)} pairs of designs in opposite ways")
    for name, i in (("mean", int(mean.argmax())), ("5 % quantile", int(bad.argmax()))):
        print(f"best by {name:12s}: design {i:2d}, mean {mean[i]:5.2f}, 5 % quantile {bad[i]:5.2f}")

# %% [markdown]
# ## One loop, two aims
#
# `ValueAtRiskUCB` takes the aim as an argument. `ValueAtRisk(0.05)` is the level that the return exceeds in all but
# the worst 5 % of winds; `Mean()` is the average. The loop chooses the gains, and then which wind to try them in.


# %%
def fitted(model):
    """The model, fitted to its data."""
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def tune(aim):
    """The gains recommended after INITIAL + ROUNDS observations of FLIGHTS flights each, and the observations."""
    torch.manual_seed(0)
    seeds = iter(range(10**6))

    def observe(xz):
        return sum(fly(xz[:-1], float(xz[-1]), next(seeds)) for _ in range(FLIGHTS)) / FLIGHTS

    box = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, 6)
    X = torch.quasirandom.SobolEngine(6, scramble=True, seed=0).draw(INITIAL, dtype=torch.float64)
    XZ = torch.cat([X, WINDS[torch.randint(21, (INITIAL,))]], -1)
    Y = torch.tensor([[observe(xz)] for xz in XZ], dtype=torch.float64)
    for _ in range(ROUNDS):
        acqf = ValueAtRiskUCB(fitted(SingleTaskGP(XZ, Y)), environment, aim, width=2.0)
        x, _ = optimize_acqf(acqf, box, q=1, num_restarts=2, raw_samples=64)
        point = acqf.select_condition(x).point
        XZ, Y = torch.cat([XZ, point]), torch.cat([Y, torch.tensor([[observe(point[0])]], dtype=torch.float64)])
    return recommend_design(fitted(SingleTaskGP(XZ, Y)), environment, aim, XZ[:, :6]).x, XZ, Y


found = {"the heuristic as it comes": torch.full((6,), 0.5, dtype=torch.float64)}
if SIMULATOR:
    found["tuned for the mean"], XZ, Y = tune(Mean())
    found["tuned for the worst 5 % of winds"], *_ = tune(ValueAtRisk(0.05))
    for name, x in found.items():
        print(f"{name:34s}", "gains", [round(g, 2) for g in (GAINS * 3.0 ** (2.0 * x - 1.0)).tolist()])

# %% [markdown]
# ## Is a crash an outlier?
#
# `RobustGP` flags what the other rewards do not foretell ([heavy tails](../heavy_tails.md)). That is right for a
# wrong reading, and wrong for a crash, which did happen. So the loop above has the plain model. Three fits show where
# `RobustGP` would help, and where it would harm:
#
# 1. It gets the observations of the loop for the mean, as they are.
# 2. It gets the same, but every twentieth was logged in the wrong unit: not divided by 100.
# 3. It gets single flights of one good design, as a function of the wind alone.

# %%
if SIMULATOR:
    as_logged = Y.clone()
    as_logged[::20] *= 100.0
    for name, log in (("true", Y), ("partly in the wrong unit", as_logged)):
        outlier = ~fitted(RobustGP(XZ, log)).inlier_mask
        print(f"observations {name}: {int(outlier.sum())} of {len(Y)} flagged, rows {outlier.nonzero()[:, 0].tolist()}")
        for make in (SingleTaskGP, RobustGP):
            value = float(recommend_design(fitted(make(XZ, log)), environment, Mean(), XZ[:, :6]).value)
            print(f"    {make.__name__:12s} expects a mean return of {value:5.2f} from its recommendation")
    winds = torch.tensor([[wind] for wind, _ in weather(LOOKS, seed=1)], dtype=torch.float64)
    flights = table[mean.argmax()]
    outlier = ~fitted(RobustGP(winds, flights.unsqueeze(-1))).inlier_mask
    lost = flights < 0.0
    print(f"flights of design {int(mean.argmax())}: {int(outlier.sum())} of {LOOKS} flagged, ", end="")
    print(f"among them {int((outlier & lost).sum())} of the {int(lost.sum())} with a negative return")

# %% [markdown]
# In the loop bad returns are common, because poor designs crash often: all are inliers of `RobustGP`, and is the plain
# model. Returns in the wrong unit are far from all others, and only these are flagged. But among the flights of a
# good design a bad one looks like a wrong reading. No model can tell the two apart, and the bad tail is what the aim is
# about. So take `RobustGP` where readings can be wrong, and the plain model where they are true and the bad ones count.
#
# ## Fresh weather
#
# All three designs fly the same new flights, in winds drawn evenly. Two summaries are printed: the mean of the
# returns with its standard error, and their 5 % quantile with a bootstrap interval (90 %). The quantile of a few
# hundred flights rests on some ten bad ones, so its interval is wide.


# %%
def summary(returns):
    """Mean, its standard error, 5 % quantile and its bootstrap interval."""
    resampled = returns[torch.randint(len(returns), (2000, len(returns)), generator=torch.Generator().manual_seed(1))]
    low, high = resampled.quantile(0.05, dim=1).quantile(torch.tensor([0.05, 0.95], dtype=torch.float64)).tolist()
    mean, error = float(returns.mean()), float(returns.std() / len(returns) ** 0.5)
    return f"mean {mean:5.2f} ± {error:.2f}   5 % quantile {float(returns.quantile(0.05)):5.2f} [{low:.2f}, {high:.2f}]"


for name, x in found.items() if SIMULATOR else ():
    print(f"{name:34s}", summary(returns_of(x, weather(FRESH, seed=2))))

# %% [markdown]
# ## What to take from it
#
# - State the aim before tuning. The mean forgives a crash that many soft landings make up for; the quantile does not.
#   One design may be best by both, and still many pairs are ordered in opposite ways.
# - What `ValueAtRisk(0.05)` bounds here is the quantile over **winds** of the mean over starts, because an
#   observation is a mean of flights. The table above shows the quantile over single **flights**, which bad starts
#   move too. If a start is part of what you fear, observe single flights, or a quantile of several.
# - This is one run of each loop with few flights. Here the design tuned for the mean has no better mean than the
#   heuristic, though its model expected more: the best of many noisy means is flattered. Which of the two tuned designs
#   is better can change with the seed: look at the intervals, and repeat before you believe an order.
# - The loop chose the winds. If they cannot be chosen, fly in what comes and give the model the wind that was:
#   nothing else changes ([value at risk](../value_at_risk.md)).
