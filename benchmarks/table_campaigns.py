"""Campaigns by the command alone, through typing errors: ``python -m benchmarks.table_campaigns``.

The table starts with eight experiments. Then ``bo-robust suggest`` proposes three at a time, eight times; they are
"measured" with noise and added to the file. A reading in twelve is mistyped: times or through ten, with exchanged
digits, or copied from the row above. A campaign is *at the optimum* if the row recommended at the end is within 2 units
of the best of 4,096 designs, and its *loss* is what it lacks. *Measured again* is the share of proposals that repeat a
design. Random designs, as many, of which the largest reading is recommended, are the baseline.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import options, report, report_environment
from bo_robust.tables.command import main as command
from bo_robust.utils.random import stream

START, ROUNDS, AT_ONCE, WRONG, NEAR = 8, 8, 3, 0.08, 2.0
SOLVENTS = {"DMF": 1.0, "MeCN": 0.8, "toluene": 0.45, "THF": 0.6, "water": 0.25}
BASES = {"K2CO3": 0.9, "Et3N": 0.6, "NaH": 0.75, "DBU": 1.0}
Row = dict[str, str]


@dataclass(frozen=True)
class Problem:
    """Designs at random, their true outcome, and whether large outcomes are good."""

    draw: Callable[[np.random.Generator], Row]
    outcome: Callable[[Row], float]
    maximize: bool = True


def factors(rng: np.random.Generator) -> Row:
    return {
        "T": str(5 * rng.integers(10, 25)),
        "time": str(rng.integers(1, 17)),
        "loading": f"{rng.integers(1, 11) / 2}",
    }


def interacting(row: Row) -> float:
    T, t, c = (float(row[name]) for name in ("T", "time", "loading"))
    return 92.0 * np.exp(
        -(((T - 85.0 + 1.5 * (t - 6.0)) / 22.0) ** 2) - (np.log(t / 6.0) ** 2) / 4.0 - (c - 3.0) ** 2 / 8.0
    )


def screened(rng: np.random.Generator) -> Row:
    return factors(rng) | {"solvent": str(rng.choice([*SOLVENTS])), "base": str(rng.choice([*BASES]))}


def with_solvent(row: Row) -> float:
    gain = SOLVENTS[row["solvent"]] * BASES[row["base"]]
    return gain * interacting(row) + (8.0 if (row["solvent"], row["base"]) == ("toluene", "NaH") else 0.0)


def mixed(rng: np.random.Generator) -> Row:
    parts = np.sort(rng.integers(0, 21, 2)) * 5
    return dict(zip("ABC", map(str, (parts[0], parts[1] - parts[0], 100 - parts[1])), strict=True))


def of_mixture(row: Row) -> float:
    a, b, c = (float(row[name]) / 100.0 for name in "ABC")
    return 20.0 + 160.0 * a * b + 90.0 * b * c - 40.0 * (c - 0.2) ** 2


def cost(row: Row) -> float:
    T, t, c = (float(row[name]) for name in ("T", "time", "loading"))
    return 30.0 + ((T - 70.0) / 9.0) ** 2 + 3.0 * abs(t - 9.0) + 4.0 * (c - 2.0) ** 2


PROBLEMS = {
    "three factors": Problem(factors, interacting),
    "solvents and bases": Problem(screened, with_solvent),
    "mixture": Problem(mixed, of_mixture),
    "cost": Problem(factors, cost, maximize=False),
}


def reading(rng: np.random.Generator, value: float, above: str) -> str:
    """What is written of an outcome."""
    text = f"{max(value + 0.8 * rng.standard_normal(), 0.1):.1f}"
    if rng.random() >= WRONG:
        return text
    slip = rng.integers(4)
    swapped = text[1] + text[0] + text[2:] if len(text) > 3 else text
    return [f"{10.0 * float(text):.0f}", f"{float(text) / 10.0:.2f}", swapped, above or text][slip]


def asked(path: Path, rows: list[Row], problem: Problem) -> tuple[list[Row], str]:
    """The designs that the command proposes for the table of these rows, and what it says."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    out, err = io.StringIO(), io.StringIO()
    arguments = [str(path), "--maximize" if problem.maximize else "--minimize", "outcome", "-n", str(AT_ONCE)]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command(arguments)
    if code:
        raise RuntimeError(err.getvalue())
    return list(csv.DictReader(io.StringIO(out.getvalue()))), err.getvalue()


def campaign(problem: Problem, seed: int, name: str) -> tuple[float, float, float]:
    """Loss of the recommendation, that of random designs, and the share of proposals that repeat a design."""
    rng, sign = stream(seed, f"campaign {name}", 0), 1.0 if problem.maximize else -1.0
    every = [sign * problem.outcome(problem.draw(rng)) for _ in range(4096)]
    rows: list[Row] = []
    proposed, again, names = [problem.draw(rng) for _ in range(START)], 0, list(problem.draw(rng))
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS + 1):
            for row in proposed:
                again += bool(rows) and any(all(row[one] == other[one] for one in names) for other in rows)
                above = rows[-1]["outcome"] if rows else ""
                rows.append({one: row[one] for one in names} | {"outcome": reading(rng, problem.outcome(row), above)})
            proposed, said = asked(Path(folder) / "results.csv", rows, problem)
    match = re.search(r"Recommended now: row (\d+)", said)
    best = max(every)
    chosen = best - sign * problem.outcome(rows[int(match[1]) - 2]) if match else best - min(every)
    drawn = [problem.draw(rng) for _ in range(START + ROUNDS * AT_ONCE)]
    top = max(drawn, key=lambda row: sign * float(reading(rng, problem.outcome(row), "")))
    return max(chosen, 0.0), best - sign * problem.outcome(top), again / (ROUNDS * AT_ONCE)


def main() -> None:
    """Report each problem, and all."""
    given = options(__doc__, positional=list(PROBLEMS), seeds=8, first=0)
    report_environment()
    found = []
    for name in given.parts or PROBLEMS:
        some = [campaign(PROBLEMS[name], seed, name) for seed in range(given.first, given.first + given.seeds)]
        losses, random, again = zip(*some, strict=True)
        detail = {"losses": [round(x, 1) for x in losses], "random": [round(x, 1) for x in random]}
        report(f"at the optimum, {name}", float(np.mean(np.array(losses) <= NEAR)), "share of campaigns", detail)
        report(f"measured again, {name}", float(np.mean(again)), "share of proposals")
        found += some
    losses, random, again = zip(*found, strict=True)
    by_chance = {"campaigns": len(found), "random designs": float(np.mean(np.array(random) <= NEAR))}
    share = float(np.mean(np.array(losses) <= NEAR))
    report("at the optimum, all", share, "share of campaigns", by_chance, least=11 / 12)
    report("measured again, all", float(np.mean(again)), "share of proposals", most=0.1)


if __name__ == "__main__":
    main()
