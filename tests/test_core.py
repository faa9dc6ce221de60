"""Without the extra [experiments] everything but experiments/ works, and `bo-robust run` says what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from bo_robust.__main__ import NEEDED

ROOT = Path(__file__).resolve().parents[1]
BLOCKED = f"import sys\nfor name in {(*NEEDED, 'jinja2')}:\n    sys.modules[name] = None\n"
FITS = """
import importlib, pkgutil, torch, bo_robust
from botorch.fit import fit_gpytorch_mll
from gpytorch.mlls import ExactMarginalLogLikelihood

imported = 0
for module in pkgutil.walk_packages(bo_robust.__path__, "bo_robust."):
    if not module.name.startswith(("bo_robust.experiments", "bo_robust.integrations")):
        importlib.import_module(module.name)
        imported += 1
assert imported > 50
X = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
Y = torch.sin(6 * X)
Y[4] = 9.0
model = bo_robust.RobustGP(X, Y)
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
assert abs(float(model.posterior(X[4:5]).mean) - float(torch.sin(6 * X[4]))) < 0.2
"""
COMMAND = "sys.argv = ['bo-robust', 'run', 'smoke']\nfrom bo_robust.__main__ import main\nmain()\n"


def python(code):
    return subprocess.run([sys.executable, "-c", BLOCKED + code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_models_fit_without_the_extra():
    done = python(FITS)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", NEEDED)
def test_the_command_says_what_to_install(module):
    """Whichever package is missing, in one line."""
    done = python("".join(f"del sys.modules[{name!r}]\n" for name in (*NEEDED, "jinja2") if name != module) + COMMAND)
    assert done.returncode == 2
    assert done.stderr == f'bo-robust: {module} not installed; run: pip install "bo-robust[experiments]"\n'
