"""Names of packages that are imported on first use, each in a process of its own where that matters."""

import importlib
import pickle
import subprocess
import sys

import pytest

import bo_robust


@pytest.mark.parametrize("package", ["", ".bandits", ".confidence", ".models", ".risk_measures"])
def test_all_names_are_found_and_listed(package):
    package = importlib.import_module(f"bo_robust{package}")
    names = package.__all__
    assert set(names) <= set(dir(package))
    assert all(getattr(package, name).__name__ for name in set(names) - {"ALGORITHMS", "FUNCTIONALS", "WIDTHS"})
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = package.absent


@pytest.mark.parametrize(
    "statement",
    [
        "import bo_robust, sys; assert not [x for x in sys.modules if x.split('.')[0] in ('torch', 'botorch')]",
        "from bo_robust import *; assert GPUCB and RobustGP and callable(suggest) and bandits.ALGORITHMS",
        "import bo_robust.proposals.suggest; from bo_robust import suggest; assert callable(suggest)",
        "from botorch.acquisition.input_constructors import get_acqf_input_constructor as get\n"
        "from bo_robust.acquisition.value_at_risk import StableOpt; assert get(StableOpt)",
        "from botorch.acquisition.input_constructors import get_acqf_input_constructor as get\n"
        "import bo_robust; assert get(bo_robust.GPUCB)",
        "import bo_robust; assert bo_robust.models.RobustGP and bo_robust.acquisition.GPUCB and bo_robust.features",
    ],
)
@pytest.mark.slow
def test_statements(statement):
    subprocess.run([sys.executable, "-W", "ignore", "-c", statement], check=True)


def test_classes_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(bo_robust.RobustGP)) is bo_robust.RobustGP
    assert pickle.loads(pickle.dumps(bo_robust.suggest)) is bo_robust.suggest
