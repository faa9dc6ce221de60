"""Run every headline figure of the five papers, and decide its claims: ``python -m benchmarks.reproduce``.

Each row of the table is a pair of methods of a file of ``configs`` (:mod:`benchmarks.claims`). The runs are those of
the file, with fewer methods. A pair is decided by the 95 % interval of its paired difference over trials
(:mod:`benchmarks.verdicts`), and is "open" where that is too wide.

As it is, the command takes few trials and ends within an hour on two cores. ``--full`` first runs all configurations,
then adds trials, with other seeds, to the panels and methods of pairs that are open, until each is decided or has had
``--trials``; those of :data:`ALWAYS` get all. It writes the page ``docs/results/papers.md`` and what is in
``benchmarks/results/papers``, after every configuration.

The same command after an interruption goes on with what is missing: jobs that are in ``--folder``, and trials of the
value at risk and rows of other configurations that are in ``--rows``, as far as the code that they depend on is that of
their revision but for added files. All others are refused, so that a page has one revision. To go on with a page, check
its revision out into one clone and give it the ``papers.json`` of the page. Configurations that are named run alone.
"""

from __future__ import annotations

import functools
import io
import json
import math
import operator
import subprocess
import sys
from collections.abc import Mapping, Sequence, Set
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import torch

from benchmarks.claims import CLAIMS, VAR, Claim, shown
from benchmarks.common import ROOT, environment, options
from benchmarks.keys import READERS
from benchmarks.panel import Panel
from benchmarks.pictures import LOG_TITLE, band, looks_of, picture
from benchmarks.run import run as run_panels
from benchmarks.statistics import CONFIDENCE, log_regret
from benchmarks.verdicts import (
    AVERAGE,
    BETTER,
    EARLY,
    END,
    LATE,
    LEVEL,
    MEASURES,
    OPEN,
    SAYS,
    SECONDS,
    WORSE,
    compared,
    paired,
    tolerance_of,
)

PAGE = ROOT / "docs" / "results" / "papers.md"
RAW = ROOT / "benchmarks" / "results" / "papers"
STORED = "papers.json"  # in RAW
# Pictures of runs that are kept, by name.
PICTURES = {
    "gp_ucb": ("srinivas/synthetic", "00-a-synthetic-se.png"),
    "starvation": ("bkb/starvation", "02-t-215.png"),
}
MOST_TRIALS = 40
# Configurations all of whose pairs get all trials: a pair that was decided early would be decided by chance.
ALWAYS = {"value_at_risk/discrete", "value_at_risk/robot_pushing"}
# Methods that no claim names, for the pictures and the table of differences: the trials of one seed. Only the page has
# those that are slow.
DRAWN, SLOW = {"RANDOM"}, {"MC-VAR-LOGNEI"}
# Of the table of differences.
OURS = ("V-UCB-PROB", "V-UCB-FRESH", "V-UCB-LNSO", "V-UCB, exact")
OTHERS = (
    "RHO-KG-APX",
    "RHO-KG-LOWEST",
    "V-UCB-PROB",
    "V-UCB-UNIF",
    "MC-VAR",
    "MC-VAR-LOGNEI",
    "V-UCB, exact",
    "RANDOM",
)
STUCK = -1.65  # log10 regret above which a trial of Branin or Hartmann-3 (1, 2) is stuck
# Trials of --full that differ from the configuration's: what takes seconds has more, what takes hours fewer at a time,
# so that what is decided early runs no longer.
FULL = {
    "unknown_hyperparameters/lengthscale": 1000,
    "unknown_hyperparameters/period": 1000,
    "unknown_hyperparameters/mean": 400,
    "bkb/dictionary": 40,
    "value_at_risk/continuous": 5,
}
# Trials of the short command that differ from the configuration's.
SHORT = {
    "value_at_risk/discrete": 4,
    "value_at_risk/continuous": 2,
    "value_at_risk/portfolio": 4,
    "value_at_risk/robot_pushing": 2,
}


def panels_of(
    name: str, claims: Sequence[Claim], seed: int = 0, trials: int | None = None, drawn: Set[str] = frozenset()
) -> list[Panel]:
    """The panels of a configuration, cut to what claims are about or is drawn, with other trials if they are given."""
    found: list[Panel] = import_module(f"configs.{name.replace('/', '.')}").PANELS
    panels = [replace(of, seed=of.seed + seed, trials=trials or of.trials, compare=()) for of in found]
    needed = {label for claim in claims for label in (claim.ours, claim.theirs)}
    if not needed:
        return panels
    shown = needed | drawn
    panels = [panels[i] for i in sorted({claim.panel for claim in claims})]
    return [replace(of, methods={label: m for label, m in of.methods.items() if label in shown}) for of in panels]


def _rounded(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part as ``papers.json`` keeps it: four digits, and no folder of this machine."""
    regrets = {
        measure: {
            panel: {method: [float(f"{value:.4g}") for value in values] for method, values in methods.items()}
            for panel, methods in panels.items()
        }
        for measure, panels in part["regrets"].items()
    }
    return {key: value for key, value in part.items() if key != "folder"} | {"regrets": regrets}


@functools.cache
def same_code(revision: str) -> bool:
    """Whether all that trials depend on is as it was at a revision; files that were added do not matter."""
    readers = [f":!benchmarks/{name}" for name in READERS]
    command = ["git", "-C", str(ROOT), "diff", "--name-only", "--diff-filter=a", revision, "--"]
    command += ["bo_robust/*.py", "benchmarks/*.py", "configs/*.py", *readers]
    changed = subprocess.run(command, capture_output=True, text=True, check=False)
    return changed.returncode == 0 and not changed.stdout.strip()


class Runs:
    """The runs of a configuration, one folder and one entry of ``parts`` for each seed.

    Args:
        name: The configuration.
        folder: Of all runs.
        full: Whether the runs are those of the page.
        stored: Parts of earlier runs, taken where ``folder`` has none.
    """

    def __init__(self, name: str, folder: Path, full: bool = False, stored: Sequence[dict[str, Any]] = ()) -> None:
        self.name, self.folder = name, folder / name.replace("/", "-")
        self.stored = [part for part in stored if same_code(part["revision"])]
        self.first, self.drawn = ("seed-0", DRAWN | SLOW) if full else ("short", DRAWN)
        self.trials = (FULL if full else SHORT).get(name)
        self.claims = [claim for claim in CLAIMS if claim.config == name]
        self.panels = panels_of(name, [], trials=self.trials)  # all of them
        self.parts: list[dict[str, Any]] = []
        self._own = functools.cache(lambda values, panel: values(self.panels[panel]))

    def add(self, claims: Sequence[Claim], workers: int) -> None:
        """Run the methods and panels of claims with the next seed, or go on with it."""
        seed = len(self.parts)
        folder = self.folder / (f"seed-{seed}" if seed else self.first)
        if seed < len(self.stored) and not (folder / "summary.json").exists():
            self.parts.append(self.stored[seed])
            return
        with redirect_stdout(sys.stderr):
            drawn: Set[str] = set() if seed else self.drawn
            run_panels(panels_of(self.name, claims, seed, self.trials, drawn), folder, jobs=workers)
        self.parts.append(self._part(folder))

    def add_where_open(self, workers: int, most: int) -> bool:
        """Add trials to the claims that are open; False if none is or they have had ``most`` trials."""
        rows = self.rows()
        claims = [c for c, row in zip(self.claims, rows, strict=True) if self.name in ALWAYS or row["found"] == OPEN]
        claims = [claim for claim in claims if claim.values is None]
        if not claims or (len(self.parts) + 1) * self.panels[0].trials > most:
            return False
        self.add(claims, workers)
        return True

    def _part(self, folder: Path) -> dict[str, Any]:
        """Where and when a folder was made, and regrets by measure, panel and method, a list of trials each."""
        summary, traces = json.loads((folder / "summary.json").read_text()), pd.read_parquet(folder / "traces.parquet")
        regrets: dict[str, dict[str, dict[str, list[float]]]] = {}
        measures = {claim.measure for claim in self.claims if claim.values is None}
        for measure in sorted(measures | ({EARLY, END, SECONDS} if LATE in measures else set())):
            of = MEASURES[measure].of
            for (panel, method), rows in traces.groupby(["panel", "method"], observed=True):
                values = [of(trial) for _, trial in rows.groupby("trial", sort=True)]
                regrets.setdefault(measure, {}).setdefault(str(panel), {})[str(method)] = values
        schemas = [pq.read_schema(file).metadata for file in (folder / "jobs").glob("*.parquet")]
        minutes = sum(json.loads(schema[b"PANDAS_ATTRS"])["seconds"] for schema in schemas) / 60.0
        ran = summary["environment"]
        # A page that was written, or a reader of traces that changed, makes a checkout dirty, and no other trials.
        revision = str(ran["git"]).removesuffix("-dirty")
        revision = revision if same_code(revision) else str(ran["git"])
        about = {"revision": revision, "date": ran["date"][:10], "minutes": round(minutes, 1)}
        return about | {"folder": str(folder), "regrets": regrets}

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        about = {
            "config": self.name,
            "revision": self.parts[0]["revision"],
            "date": self.parts[-1]["date"],
            "minutes": round(sum(part["minutes"] for part in self.parts), 1),
        }
        return [self._row(claim) | about for claim in self.claims]

    def _row(self, claim: Claim) -> dict[str, Any]:
        panel = self.panels[claim.panel]
        by_method = self._own(claim.values, claim.panel) if claim.values else self._values(claim, panel)
        tolerance = tolerance_of(claim.measure, by_method, self._range(claim, panel))
        found = compared(claim.measure, by_method[claim.ours], by_method[claim.theirs], tolerance)
        return {
            "paper": claim.paper,
            "figure": claim.figure,
            "claim": claim.text,
            "measure": "" if claim.values else MEASURES[claim.measure].words,
            "question": claim.question,
            "as_claimed": found["found"] in SAYS[claim.says][1],
            "rounds": panel.rounds,
            **found,
        }

    def _values(self, claim: Claim, panel: Panel) -> dict[str, dict[tuple[int, int], float]]:
        """By method of the panel's claims, which are on the axis, and trial."""
        labels = {label for c in self.claims if c.panel == claim.panel for label in (c.ours, c.theirs)}
        return {label: by_trial(self.parts, panel.name, claim.measure, label) for label in labels}

    @staticmethod
    def _range(claim: Claim, panel: Panel) -> float:
        """The mean range of f, where the measure is in units of it."""
        if MEASURES[claim.measure].within != "range":
            return 0.0
        of: Any = panel
        f = of.built(range(panel.trials), torch.device("cpu")).f
        return float((f.amax(1) - f.amin(1)).mean())

    def traces(self, panel: str) -> pd.DataFrame:
        """The traces of a panel, of the seeds that have a folder here; trials are numbered on."""
        frames = []
        for seed, part in enumerate(self.parts):
            if "folder" in part:
                frame = pd.read_parquet(Path(part["folder"]) / "traces.parquet")
                frame["trial"] += seed * self.panels[0].trials
                frames.append(frame[frame["panel"] == panel])
        return pd.concat(frames, ignore_index=True)


def by_trial(parts: Sequence[Mapping[str, Any]], panel: str, measure: str, label: str) -> dict[tuple[int, int], float]:
    """A measure of a method in a panel, by seed and trial."""
    found = (part["regrets"].get(measure, {}).get(panel, {}).get(label, ()) for part in parts)
    return {(seed, trial): value for seed, values in enumerate(found) for trial, value in enumerate(values)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the configurations named, or all; with ``--full`` their rows are those of the page."""
    names = list(dict.fromkeys(claim.config for claim in CLAIMS))
    folder = Path("results/reproduce")
    rows = str(RAW / STORED)
    given = options(__doc__, names, arguments, folder=folder, workers=2, full=False, rows=rows, trials=MOST_TRIALS)
    kept = json.loads(file.read_text()) if (file := Path(given.rows)).exists() else {"rows": []}
    kept["rows"] = [row for row in kept["rows"] if "revision" in row and same_code(row["revision"])]
    stored = kept.get("parts", {}) if given.full else {}
    chosen, all_runs = given.parts or names, dict[str, Runs]()
    for name in chosen:
        all_runs[name] = of = Runs(name, given.folder, given.full, stored.get(name, ()))
        of.add(of.claims, given.workers)
        if given.full:
            write(all_runs, kept)
        else:
            for row in of.rows():
                print(json.dumps(row, ensure_ascii=False), flush=True)
    more = list(all_runs.values()) if given.full else []
    while more:
        more = [of for of in more if of.add_where_open(given.workers, given.trials)]
        write(all_runs, kept)


def write(all_runs: Mapping[str, Runs], kept: Mapping[str, Any]) -> None:
    """Write the page, its pictures and ``papers.json``; rows of configurations that did not run stay."""
    RAW.mkdir(exist_ok=True)
    for kept_as, (name, file) in PICTURES.items():
        if name in all_runs and (made := all_runs[name].folder / "seed-0" / file).exists():
            _save(made.read_bytes(), RAW / f"{kept_as}.png")
    risks = [of for name, of in all_runs.items() if name.startswith("value_at_risk/")]
    drawn = [of for of in risks if any("folder" in part for part in of.parts)]
    if drawn:
        draw(drawn, RAW / "value_at_risk.png")
    rows = [row for of in all_runs.values() for row in of.rows()]
    every = {(row["config"], row["figure"], row["claim"], row["measure"]): row for row in (*kept["rows"], *rows)}
    order = [(c.config, c.figure, c.text, "" if c.values else MEASURES[c.measure].words) for c in CLAIMS]
    # Stored parts that come later have not been added yet, and must outlive an interruption.
    parts = {of.name: [_rounded(part) for part in (*of.parts, *of.stored[len(of.parts) :])] for of in risks}
    stored = {name: [p for p in of if same_code(p["revision"])] for name, of in kept.get("parts", {}).items()}
    result = {"environment": environment(), "rows": [every[key] for key in order if key in every]}
    result |= {"parts": stored | parts}
    (RAW / STORED).write_text(json.dumps(result, ensure_ascii=False) + "\n")
    PAGE.write_text(page(result))


def draw(of: Sequence[Runs], path: Path) -> None:
    """log10 regret of the value at risk against rounds, of all methods, a panel of each problem."""
    panels = [(run, panel.name) for run in of for panel in run.panels]
    looks, rows = (
        looks_of([*dict.fromkeys(label for run in of for label in run.panels[0].labels)]),
        -(-len(panels) // 3),
    )

    def fill(axes: list[Any]) -> None:
        for axis, (run, name) in zip(axes, panels, strict=False):
            for label, method in run.traces(name).groupby("method", observed=True):
                by_round = method.pivot_table(index="trial", columns="round", values="regret")
                at, values = by_round.columns.to_numpy(), log_regret(by_round.to_numpy())
                band(axis, at, values, str(label), looks[str(label)], CONFIDENCE)
            axis.set_title(name)
            axis.set_xlabel("round")
        for axis in axes[len(panels) :]:
            axis.remove()

    _save(picture((rows, 3), (11.0, 3.2 * rows), fill, LOG_TITLE), path)


def _save(picture: bytes, path: Path) -> None:
    """Save a picture in few colours, a third of the size."""
    from PIL import Image

    Image.open(io.BytesIO(picture)).convert("RGB").quantize(128).save(path, optimize=True)


def differences(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """The table of V-UCB less all others in log10 regret, early and late, and of ρKG's time over V-UCB's."""
    lines = []
    for given in parts.values():
        for panel in given[0]["regrets"][LATE] if given else ():
            for measure, rounds in ((EARLY, "20"), (END, "the last")):
                for ours in OURS:
                    if not (mine := by_trial(given, panel, measure, ours)):
                        continue
                    cells = [
                        _difference(given, panel, measure, mine, other) if other != ours else "" for other in OTHERS
                    ]
                    times = (pd.Series(by_trial(given, panel, SECONDS, name)) for name in ("RHO-KG-APX", ours))
                    ratio = operator.truediv(*times).median()
                    cells.append("" if math.isnan(ratio) else f"{ratio:.2g}")
                    cells.append(f"{sum(x > STUCK for x in mine.values()) / len(mine):.0%}" if measure == END else "")
                    lines.append([panel, rounds, shown(ours), *cells])
    head = ["problem", "round", "less others", *map(shown, OTHERS), "ρKG's time over its", f"above {STUCK}"]
    return table(head, lines) if lines else []


def _difference(
    parts: Sequence[Mapping[str, Any]], panel: str, measure: str, mine: Mapping[Any, float], other: str
) -> str:
    theirs = by_trial(parts, panel, measure, other)
    if len(mine.keys() & theirs.keys()) < 2:
        return ""
    trials, _, mean, low, high = paired(mine, theirs)
    return f"{mean:.2f} [{low:.2f}, {high:.2f}] ({len(trials)})"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table of Markdown."""
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *lines)]


HEAD = ("figure", "pair", "as claimed", "found", "ours", "theirs", "ours less theirs", "ratio", "level within", "scale")
INTRODUCTION = """\
`python -m benchmarks.reproduce --full` runs the headline figures of the five papers and writes this page: {minutes} \
minutes of a core ({processor}), {versions}, all at revision {revision}, {dates}. Rows of another revision \
are refused.

A row is a pair of methods. Its difference is paired over trials, with its 95 % interval. It is **level** where the \
interval lies within a tolerance on either side of 0, else **better** where it lies below, **worse** where it lies \
above, and **open** otherwise. The tolerance is 1 % of the axis for average regret (up to the largest mean of the \
methods compared), 1 % of f's range for the best queried, 0.3 in log10 regret of the value at risk (mean of rounds \
51 to 60), and 1 % for shares. These were fixed before the runs. Trials are added until a pair is decided, up to \
{most}; Figure 3 and the robot of Nguyen et al. get all of them."""


def page(result: Mapping[str, Any]) -> str:
    """The page of results."""
    rows, about = result["rows"], result["environment"]
    minutes = {row["config"]: float(row["minutes"]) for row in rows}
    dates = sorted({row["date"] for row in rows})
    introduction = INTRODUCTION.format(
        minutes=math.ceil(sum(minutes.values())),
        processor=about["processor"],
        versions=", ".join(f"{name} {about['versions'][name]}" for name in ("torch", "botorch")),
        revision=", ".join(sorted({row["revision"] for row in rows})),
        dates=" to ".join(dict.fromkeys((dates[0], dates[-1]))),
        most=MOST_TRIALS,
    )
    lines = ["# Results: the papers' figures", introduction, *_counts(rows)]
    lines.append("![Value at risk: log10 regret against rounds](../../benchmarks/results/papers/value_at_risk.png)")
    for paper in dict.fromkeys(row["paper"] for row in rows):
        of = [row for row in rows if row["paper"] == paper]
        lines += [f"## {paper}", *_table_of([row for row in of if not row["question"]])]
        if asked := [row for row in of if row["question"]]:
            lines += ["Questions of ours beside the paper's:", *_table_of(asked)]
        if paper == VAR and (risks := differences(result["parts"])):
            lines += [
                "Differences in log10 regret of the value at risk (regrets below 1e-4 count as that), V-UCB less "
                "another, with 95 % intervals and the trials; ρKG's seconds to choose a point over its own; and the "
                f"share of trials that end above {STUCK}, which on Branin-Hoo and Hartmann-3 (1,2) are stuck.",
                "\n".join(risks),
            ]
    return "\n\n".join(lines) + "\n"


def _counts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many pairs are as claimed, which are open, and which have not run at this revision."""
    lines = []
    for asked, whose in ((False, "that the papers claim"), (True, "of questions of ours")):
        of = [row for row in rows if row["question"] is asked]
        words = {word: sum(row["found"] == word for row in of) for word in (BETTER, LEVEL, WORSE, OPEN)}
        said = ", ".join(f"{number} {word}" for word, number in words.items())
        claimed = ":" if asked else f" {sum(row['as_claimed'] for row in of)} are as claimed:"
        lines.append(f"Of {len(of)} pairs {whose}{claimed} {said}.")
    opened = [
        f"{r['figure']} {r['claim']} (± {r['half_width']}, level within {r['within']})"
        for r in rows
        if r["found"] == OPEN
    ]
    there = {row["config"] for row in rows}
    missing = [name for name in dict.fromkeys(claim.config for claim in CLAIMS) if name not in there]
    lines = [" ".join(lines)]
    if opened:
        lines.append(f"Open, with half of their intervals: {'; '.join(opened)}.")
    if missing:
        lines.append(f"Not run yet at this revision: {', '.join(missing)}.")
    return lines


def _table_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    lines = []
    for row in rows:
        measure = (
            f"; {row['measure']}" if row["measure"] not in ("", MEASURES[AVERAGE].words, MEASURES[LATE].words) else ""
        )
        as_claimed = "" if row["question"] else "yes" if row["as_claimed"] else "no"
        scale = f"{row['trials']} x {row['rounds']}"
        cells = [row[key] for key in ("found", "ours", "theirs", "less", "ratio", "within")]
        lines.append([row["figure"], f"{row['claim']}{measure}", as_claimed, *cells, scale])
    return ["\n".join(table(HEAD, lines))]


if __name__ == "__main__":
    main()
