"""Every private or undocumented name of other packages: a red test says which one vanished."""

import importlib
import inspect
import re
import sys
from functools import cache

import pytest
import torch
from botorch.posteriors import Posterior

import bo_robust.proposals.suggest  # noqa: F401  its classes
from bo_robust.utils.upstream import OVERRIDDEN, USED

READERS = {  # where an attribute is asked for that a class need not have
    "_supports_cache_root": "botorch.acquisition.cached_cholesky",
    "_supports_batched_models": "ax.generators.torch.botorch_modular.utils",
    "_num_outputs": "botorch.models.gpytorch",
    "_is_linear": "botorch.acquisition.cached_cholesky",
}


def imported(module):
    package = module.split(".")[0]
    return importlib.import_module(module) if package in sys.modules else pytest.importorskip(module)


@cache
def given_to_self(cls):
    """Attributes that the methods of a class read or set of their object."""
    return set(re.findall(r"\bself\.(\w+)", inspect.getsource(cls)))


def has(cls, name):
    """Whether a class or a base of it has an attribute, or gives it to its objects."""
    return hasattr(cls, name) or any(name in given_to_self(base) for base in cls.__mro__[:-1])


@pytest.mark.parametrize("place", [*USED, *OVERRIDDEN])
def test_upstream_has(place):
    module, _, path = place.partition(":")
    found, *rest = imported(module), *path.split(".")
    assert hasattr(found, rest[0])
    assert len(rest) == 1 or has(getattr(found, rest[0]), rest[1])


@pytest.mark.parametrize("name", READERS)
def test_upstream_still_reads(name):
    assert re.search(rf"\b{name}\b", inspect.getsource(imported(READERS[name])))


def test_every_override_is_declared():
    """A private name of our models, kernels and posteriors is not one of their upstream bases by chance."""
    modules = [module for name, module in sys.modules.items() if name.startswith("bo_robust.")]
    ours = {cls for module in modules for cls in vars(module).values() if inspect.isclass(cls)}
    ours = {cls for cls in ours if issubclass(cls, torch.nn.Module | Posterior) and "bo_robust." in cls.__module__}
    declared = {place.rpartition(".")[2] for place in OVERRIDDEN}
    assert len(ours) > 20
    for cls in ours:
        bases = [base for base in cls.__mro__[1:-1] if not base.__module__.startswith("bo_robust.")]
        names = {name for name in vars(cls) if re.match(r"_(?!_|abc)", name)} - declared
        assert not {name for name in names for base in bases if has(base, name)}, cls
