# %% [markdown]
# # The worst 10 % of conditions
#
# A small network, pretrained on the even digits, is fine-tuned on 200 odd ones. In use the images will be noisy and
# turned, more or less. The learning rate, the weight decay and the width of the head are to be chosen so that
# accuracy stays good in the **worst 10 % of conditions**, not on average: the value at risk at α = 0.1.
#
# The digits are scikit-learn's (`pip install scikit-learn`); everything runs on the CPU, or on CUDA where there is
# one.

# %%
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

from bo_robust import ValueAtRiskUCB
from bo_robust.acquisition import recommend
from bo_robust.experiments.problems.value_at_risk import make
from bo_robust.functionals import Mean, ValueAtRisk

ROUNDS = 20
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
problem = make("digits", device=device)
x_bounds, z_bounds, environment = problem.x_bounds, problem.z_bounds, problem.environment
print("x: log10 learning rate, log10 weight decay, log2 width, in", x_bounds.T.tolist())
print("z: noise level and rotation,", len(environment.z), "conditions in", z_bounds.T.tolist())

# %% [markdown]
# ## The loop
#
# The model is a GP over design and condition together, (x, z). Each round the acquisition chooses x alone, as the
# maximiser of the upper confidence bound of the value at risk; then a *lacing value*, the condition whose measurement
# says most about that tail, is chosen for it. One observation is one training run, tested under one condition.

# %%
aim = ValueAtRisk(problem.alpha)
columns = torch.cat([x_bounds, z_bounds], -1)


def observe(xz):
    """Accuracy of one training run under one condition; noise as of another training seed."""
    y = problem.f(xz)
    return (y + problem.noise_var**0.5 * torch.randn(y.shape, dtype=torch.float64).to(y)).unsqueeze(-1)


def fitted(XZ, Y):
    """GP over (x, z), hyperparameters by maximum likelihood."""
    model = SingleTaskGP(XZ, Y, input_transform=Normalize(5, bounds=columns))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


torch.manual_seed(0)
X = x_bounds[0] + (x_bounds[1] - x_bounds[0]) * torch.rand(10, 3, dtype=torch.float64).to(x_bounds)
XZ = torch.cat([X, environment.z[torch.randint(len(environment.z), (10,)).to(device)]], -1)
Y = observe(XZ)
for _ in range(ROUNDS):
    model = fitted(XZ, Y)
    acqf = ValueAtRiskUCB(model, environment, aim, width=2.0)
    x, _ = optimize_acqf(acqf, x_bounds, q=1, num_restarts=4, raw_samples=64)
    point = acqf.select_environment(x).point
    XZ, Y = torch.cat([XZ, point]), torch.cat([Y, observe(point)])

# %% [markdown]
# ## What came out
#
# The recommendation is the design, among those tried, whose posterior mean has the best value at risk. This problem
# is cheap enough to look behind the curtain: `problem.f` gives the accuracy under all 64 conditions. Beside it stand
# the design recommended for the mean from the same data (it may be the same one), and the mean over the ten random
# designs of the start. The best possible accuracy in the worst 10 %, found by exhaustive search, is 0.630
# (`problem.notes`).

# %%
model = fitted(XZ, Y)


def truth(x):
    """Value at risk and mean of the accuracy of one design over all conditions, noiseless."""
    values = problem.f(environment.points(x))
    return float(aim(values, environment.probabilities)), float(Mean()(values, environment.probabilities))


for name, functional in (("worst 10 %", aim), ("mean", Mean())):
    found = recommend(model, environment, functional, XZ[:, :3])
    risk, mean = truth(found.x)
    print(
        f"chosen for {name:10s}: accuracy in the worst 10 % {risk:.3f}, on average {mean:.3f}, x",
        [round(v, 2) for v in found.x.tolist()],
    )
start = torch.tensor([truth(x) for x in X])
print(
    f"random designs       : accuracy in the worst 10 % {start[:, 0].mean():.3f}, on average {start[:, 1].mean():.3f}"
)

# %% [markdown]
# ## How far to trust it
#
# `certificate` bounds the regret of a design, where the confidence bounds hold. After so few runs in five dimensions
# it says little; and as hyperparameters are fitted to few points it is no theorem: in the benchmark it failed in up
# to 29 % of the rounds on one problem. On this very problem the [benchmark](../value_at_risk.md) did not show any
# method to be better than random designs after 30 rounds: training seeds alone move the accuracy by 0.02. What the
# loop gives you is the right aim and an estimate for it.

# %%
acqf = ValueAtRiskUCB(model, environment, aim, width=2.0)
x, upper = optimize_acqf(acqf, x_bounds, q=1, num_restarts=4, raw_samples=64)
choice = recommend(model, environment, aim, XZ[:, :3])
print(f"estimate {float(choice.value):.3f}; at most {float(acqf.certificate(choice.x, upper)):.3f} from the optimum")
