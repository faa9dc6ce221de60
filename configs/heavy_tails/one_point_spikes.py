"""Ray Chowdhury & Gopalan 2019, Fig. 1 (f): noise of +-10 at one random arm, none elsewhere, 50 placements of it.

The width is log t, and truncation is at t^(1/4). The caption's band is mu +- sigma averaged over the placements, which
``python -m benchmarks.reproduce`` looks at; ``end`` in the table is of the width log t, which covers f without
truncation as well at the paper's lambda = 1 and does not at 0.1.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.published import LogWidth
from benchmarks.problems.synthetic import SpikedFunction
from benchmarks.run import main
from bo_robust.bandits import GPUCB, TGPUCB
from bo_robust.confidence.truncation import TGPTruncation

METHODS = {
    "no truncation": GPUCB(LogWidth()),
    "truncation": TGPUCB(LogWidth(), TGPTruncation(moment_bound=1.0, alpha=1.0)),
}
COMPARE = [("truncation", "no truncation")]
PANELS = [
    ArmsPanel(name, problem, METHODS, trials=50, rounds=10000, compare=COMPARE)
    for name, problem in (
        ("(f) spikes, lambda 0.1", SpikedFunction(noise_var=0.1)),
        ("(f) spikes, lambda 1", SpikedFunction()),
        ("(f) spikes, lambda 1, a sign at every pull", SpikedFunction(every_pull=True)),
    )
]

if __name__ == "__main__":
    main(PANELS)
