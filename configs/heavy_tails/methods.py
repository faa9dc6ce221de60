"""The methods of Fig. 1 of Ray Chowdhury & Gopalan 2019, in three groups by their width.

Nystrom: q = log(T) / epsilon^2 with epsilon = 0.1 as in the published script; dictionaries are drawn anew whenever the
round number has grown by 1 %, not every round.
"""

from collections.abc import Mapping

from benchmarks.methods.arms import (
    Method,
    ata,
    fourier,
    fourier_width,
    heavy_tails,
    moments,
    nystrom_width,
    practical,
    tgp_level,
    tgp_width,
)
from benchmarks.methods.published import PublishedATATruncation, PublishedATAWidth, PublishedTGPWidth
from bo_robust.bandits import GPUCB, TGPUCB
from bo_robust.bandits.posteriors.dictionary import NystromDictionary

NYSTROM = NystromDictionary(oversampling=990.0, redraw_growth=1.01)
PUBLISHED_NYSTROM = NystromDictionary(oversampling=990.0, redraw_growth=1.01, copies=False)

# The same practical width for all (Srinivas et al., Theorem 1, w^2 / 5).
PRACTICAL: dict[str, Method] = {
    "GP-UCB": lambda p: GPUCB(practical(p)),
    "TGP-UCB": lambda p: TGPUCB(practical(p), tgp_level(p)),
}
NYSTROM_PRACTICAL: dict[str, Method] = {"ATA-Nystrom": lambda p: ata(p, practical(p), NYSTROM)}
# Each theorem's own width. For GP-UCB, which does not truncate, they are no theorem: the control for the width.
THEOREMS: dict[str, Method] = {
    "GP-UCB, TGP width": lambda p: GPUCB(tgp_width(p)),
    "TGP-UCB, TGP width": lambda p: TGPUCB(tgp_width(p), tgp_level(p)),
}
NYSTROM_THEOREM: dict[str, Method] = {"ATA-Nystrom, theorem": lambda p: ata(p, nystrom_width(p), NYSTROM)}
# The constants of the authors' published scripts (smaller than the theorems').
PUBLISHED: dict[str, Method] = {
    "GP-UCB, published TGP width": lambda p: GPUCB(PublishedTGPWidth(*heavy_tails(p))),
    "TGP-UCB, published": lambda p: TGPUCB(PublishedTGPWidth(*heavy_tails(p)), tgp_level(p)),
}
NYSTROM_PUBLISHED: dict[str, Method] = {
    "ATA-Nystrom, published": lambda p: ata(
        p,
        PublishedATAWidth(*heavy_tails(p), p.rounds, None),
        PUBLISHED_NYSTROM,
        PublishedATATruncation(*moments(p), p.rounds, None),
    )
}
COMPARE_NYSTROM = [
    ("TGP-UCB", "GP-UCB"),
    ("ATA-Nystrom", "TGP-UCB"),
    ("ATA-Nystrom", "GP-UCB"),
    ("TGP-UCB, TGP width", "GP-UCB, TGP width"),
    ("ATA-Nystrom, theorem", "TGP-UCB, TGP width"),
    ("TGP-UCB, published", "GP-UCB, published TGP width"),
    ("ATA-Nystrom, published", "TGP-UCB, published"),
]
COMPARE = [
    ("TGP-UCB", "GP-UCB"),
    ("ATA-QFF", "TGP-UCB"),
    ("ATA-QFF", "GP-UCB"),
    ("ATA-Nystrom", "TGP-UCB"),
    ("ATA-Nystrom", "GP-UCB"),
    ("TGP-UCB, TGP width", "GP-UCB, TGP width"),
    ("ATA-QFF, theorem", "TGP-UCB, TGP width"),
    ("ATA-QFF, theorem", "GP-UCB, ATA width"),
    ("ATA-Nystrom, theorem", "TGP-UCB, TGP width"),
    ("TGP-UCB, published", "GP-UCB, published TGP width"),
    ("ATA-QFF, published", "TGP-UCB, published"),
    ("ATA-Nystrom, published", "TGP-UCB, published"),
    ("ATA-QFF, published", "GP-UCB, published ATA width"),
]


def gp_ucb_of_ata(num_frequencies: int) -> dict[str, Method]:
    """GP-UCB with the width of the theorem of ATA-GP-UCB."""
    return {"GP-UCB, ATA width": lambda p: GPUCB(fourier_width(p, num_frequencies))}


def gp_ucb_of_published_ata(num_frequencies: int) -> dict[str, Method]:
    """GP-UCB with the published width of ATA-GP-UCB."""
    return {
        "GP-UCB, published ATA width": lambda p: GPUCB(
            PublishedATAWidth(*heavy_tails(p), p.rounds, 2 * num_frequencies)
        )
    }


def qff(nodes: int, lengthscale: float | None = None) -> dict[str, Method]:
    """ATA-GP-UCB with quadrature Fourier features, at the practical width."""
    return {"ATA-QFF": lambda p: ata(p, practical(p), fourier(p, nodes, lengthscale))}


def qff_theorem(nodes: int, frequencies: int, lengthscale: float | None = None) -> dict[str, Method]:
    """The same at the width of its theorem."""
    return {
        "ATA-QFF, theorem": lambda p: ata(p, fourier_width(p, frequencies), fourier(p, nodes, lengthscale)),
    }


def qff_published(nodes: int, frequencies: int, lengthscale: float | None = None) -> dict[str, Method]:
    """The same with the published constants."""
    return {
        "ATA-QFF, published": lambda p: ata(
            p,
            PublishedATAWidth(*heavy_tails(p), p.rounds, 2 * frequencies),
            fourier(p, nodes, lengthscale),
            PublishedATATruncation(*moments(p), p.rounds, 2 * frequencies),
        )
    }


def figure(
    nodes: int, frequencies: int, lengthscale: float | None = None, more: Mapping[str, Method] | None = None
) -> dict[str, Method]:
    """All methods of a panel with locations; those of ``more`` follow ATA-QFF."""
    return {
        **PRACTICAL,
        **qff(nodes, lengthscale),
        **(more or {}),
        **NYSTROM_PRACTICAL,
        **THEOREMS,
        **qff_theorem(nodes, frequencies, lengthscale),
        **gp_ucb_of_ata(frequencies),
        **NYSTROM_THEOREM,
        **PUBLISHED,
        **gp_ucb_of_published_ata(frequencies),
        **qff_published(nodes, frequencies, lengthscale),
        **NYSTROM_PUBLISHED,
    }
