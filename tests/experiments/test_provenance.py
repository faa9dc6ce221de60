"""What counts as other code or another machine than those that a run began on."""

import json
import os
import subprocess
import sys

import pytest

from bo_robust.experiments.provenance import differences, fingerprint


def test_what_only_one_side_has_differs_too():
    """Plain ops in one of two places play other traces, whichever place that is."""
    assert differences({"torch": "2"}, {"torch": "2", "ops": "naive"}) == "ops None -> naive"
    assert differences({"torch": "2", "ops": "naive"}, {"torch": "3"}) == "torch 2 -> 3; ops naive -> None"
    assert differences({"torch": "2"}, {"torch": "2"}) == ""


def test_the_machine_and_what_computes_are_in_it():
    of = fingerprint("cpu")
    assert {"torch", "botorch", "gpytorch", "linear_operator", "numpy", "scipy", "source", "threads"} <= of.keys()
    assert of["processor"] not in ("", "x86_64")
    assert of["blas"].startswith("torch ")
    assert "numpy " in of["blas"]


@pytest.mark.parametrize(
    ("variable", "value", "key"),
    [("ATEN_CPU_CAPABILITY", "default", "cpu_capability"), ("OPENBLAS_CORETYPE", "Prescott", "OPENBLAS_CORETYPE")],
)
def test_other_kernels_are_another_fingerprint(variable, value, key):
    """With them 3,646 of 16,440 arms of a smoke run differed, on the same machine."""
    code = "import json, sys; from bo_robust.experiments.provenance import fingerprint; "
    code += "import torch; torch.set_num_threads(1); json.dump(fingerprint('cpu'), sys.stdout)"
    found = [
        json.loads(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout)
        for env in ({**os.environ}, {**os.environ, variable: value})
    ]
    (changed,) = differences(*found).split("; ")
    assert changed.startswith(f"{key} ")
