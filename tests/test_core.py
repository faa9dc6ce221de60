"""Without the extra [experiments] everything but experiments/ works, and `bo-robust run` says what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from bo_robust.__main__ import NEEDED, main

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


def test_models_fit_without_the_extra():
    done = subprocess.run([sys.executable, "-c", BLOCKED + FITS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", NEEDED)
def test_the_command_says_what_to_install(module, monkeypatch, capsys):
    """Whichever package is missing, in one line."""
    monkeypatch.setattr(sys, "argv", ["bo-robust", "run", "smoke"])
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    said = f'bo-robust: {module} not installed; run: pip install "bo-robust[experiments]"\n'
    assert capsys.readouterr().err == said
