"""Run every headline figure of the five papers, and decide its claims: ``python -m benchmarks.reproduce``.

Each row of the table is a claim of a paper, about pairs of methods of a file of ``configs``. The runs are those of the
file, with fewer methods. A pair is decided by the 95 % interval of its paired difference over trials
(:func:`decide`); a claim is "open" where the interval is too wide.

As it is, the command takes few trials and ends within an hour on two cores. ``--full`` first runs all configurations,
then adds trials, with other seeds, to the panels and methods of claims that are open, until each is decided or has had
``--trials``. It writes the page ``docs/results/papers.md`` and what is in ``benchmarks/results/papers``. The same
command after an interruption goes on with what is missing. Configurations that are named replace their own rows only;
``--resume`` takes the trials of value at risk that the folder or ``papers.json`` has, whatever revision ran them.
"""

from __future__ import annotations

import io
import json
import math
import operator
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.claims import CLAIMS, EARLY, LATE, MEASURES, NO, OPEN, SECONDS, VAR, YES, Claim, paired, verdict
from benchmarks.common import ROOT, environment, options
from benchmarks.panel import Panel
from benchmarks.pictures import LOG_TITLE, band, looks_of, picture
from benchmarks.run import run as run_panels
from benchmarks.statistics import CONFIDENCE, log_regret

PAGE = ROOT / "docs" / "results" / "papers.md"
RAW = ROOT / "benchmarks" / "results" / "papers"
STORED = "papers.json"  # in RAW
# Pictures of runs that are kept, by name.
PICTURES = {
    "gp_ucb": ("srinivas/synthetic", "00-a-synthetic-se.png"),
    "starvation": ("bkb/starvation", "02-t-215.png"),
}
MOST_TRIALS = 40
# Methods that no claim names, for the pictures.
DRAWN = {"RANDOM"}
# Of the table of differences.
OURS = {"V-UCB-PROB": "V-UCB Prob", "V-UCB-LNSO": "V-UCB by LNSO", "V-UCB, exact": "V-UCB, exact"}
OTHERS = {
    "RHO-KG-APX": "ρKG",
    "V-UCB-UNIF": "V-UCB Unif",
    "MC-VAR": "MC-VaR",
    "V-UCB, exact": "V-UCB, exact",
    "RANDOM": "random",
}
# Trials of --full that differ from the configuration's: what takes seconds has more, what takes hours fewer at a time,
# so that what is decided early runs no longer.
FULL = {
    "unknown_hyperparameters/lengthscale": 1000,
    "unknown_hyperparameters/period": 1000,
    "value_at_risk/continuous": 5,
}
# Trials of the short command that differ from the configuration's.
SHORT = {
    "value_at_risk/discrete": 4,
    "value_at_risk/continuous": 2,
    "value_at_risk/portfolio": 4,
    "value_at_risk/robot_pushing": 2,
}


def panels_of(name: str, claims: Sequence[Claim], seed: int = 0, trials: int | None = None) -> list[Panel]:
    """The panels of a configuration, cut to what claims are about, with other trials if they are given."""
    found: list[Panel] = import_module(f"configs.{name.replace('/', '.')}").PANELS
    panels = [replace(of, seed=of.seed + seed, trials=trials or of.trials, compare=()) for of in found]
    needed = {label for claim in claims for label in claim.labels}
    if not needed:
        return panels
    shown = needed if seed else needed | DRAWN
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


class Runs:
    """The runs of a configuration, one folder and one entry of ``parts`` for each seed.

    Args:
        name: The configuration.
        folder: Of all runs.
        full: Whether the runs are those of the page.
        stored: Parts of earlier runs, taken where ``folder`` has none. If there are any, what is finished in ``folder``
            counts too, though another revision or configuration made it.
    """

    def __init__(self, name: str, folder: Path, full: bool = False, stored: Sequence[dict[str, Any]] = ()) -> None:
        self.name, self.folder, self.stored = name, folder / name.replace("/", "-"), stored
        self.first = "seed-0" if full else "short"
        self.trials = (FULL if full else SHORT).get(name)
        self.claims = [claim for claim in CLAIMS if claim.config == name]
        self.panels = panels_of(name, [], trials=self.trials)  # all of them
        self.parts: list[dict[str, Any]] = []

    def add(self, claims: Sequence[Claim], workers: int) -> None:
        """Run the methods and panels of claims with the next seed, or go on with it."""
        seed = len(self.parts)
        folder = self.folder / (f"seed-{seed}" if seed else self.first)
        if seed < len(self.stored) and not folder.exists():
            self.parts.append(self.stored[seed])
            return
        panels, start = panels_of(self.name, claims, seed, self.trials), time.perf_counter()
        taken = folder.with_suffix(".json")
        self.folder.mkdir(parents=True, exist_ok=True)
        before = json.loads(taken.read_text()) if taken.exists() else 0.0
        finished = (folder / "summary.json").exists()
        if not (finished and self.stored):
            try:
                with redirect_stdout(sys.stderr):
                    run_panels(panels, folder, jobs=workers)
            finally:
                taken.write_text(json.dumps(before + (0.0 if finished else time.perf_counter() - start)))
        self.parts.append(self._part(folder))

    def add_where_open(self, workers: int, most: int) -> bool:
        """Add trials to the claims that are open; False if none is or they have had ``most`` trials."""
        claims = [claim for claim, row in zip(self.claims, self.rows(), strict=True) if row["verdict"] == OPEN]
        if not claims or (len(self.parts) + 1) * self.panels[0].trials > most:
            return False
        self.add(claims, workers)
        return True

    def _part(self, folder: Path) -> dict[str, Any]:
        """Where and when a folder was made, and regrets by measure, panel and method, a list of trials each."""
        summary, traces = json.loads((folder / "summary.json").read_text()), pd.read_parquet(folder / "traces.parquet")
        regrets: dict[str, dict[str, dict[str, list[float]]]] = {}
        measures = {claim.measure for claim in self.claims if claim.pairs}
        for measure in sorted(measures | ({EARLY, SECONDS} if LATE in measures else set())):
            of = MEASURES[measure].of
            for (panel, method), rows in traces.groupby(["panel", "method"], observed=True):
                values = [of(trial) for _, trial in rows.groupby("trial", sort=True)]
                regrets.setdefault(measure, {}).setdefault(str(panel), {})[str(method)] = values
        minutes = json.loads(folder.with_suffix(".json").read_text()) / 60.0
        ran = summary["environment"]
        about = {"revision": str(ran["git"])[:7], "date": ran["date"][:10], "minutes": round(minutes, 1)}
        return about | {"folder": str(folder), "regrets": regrets}

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        rows = []
        for claim in self.claims:
            panel = self.panels[claim.panel]
            if claim.check:
                folder = self.folder / self.first
                (ours, found), trials = claim.check(self.panels, claim.panel, folder), panel.trials
            else:
                regrets = {name: by_trial(self.parts, panel.name, claim.measure, name) for name in claim.labels}
                ours, found, trials = verdict(claim, regrets)
            rows.append(
                {
                    "paper": claim.paper,
                    "figure": claim.figure,
                    "claim": claim.text,
                    "ours": ours,
                    "verdict": found,
                    "scale": f"{trials} x {panel.rounds}",
                    "config": self.name,
                    "revision": ", ".join(dict.fromkeys(part["revision"] for part in self.parts)),
                    "date": self.parts[-1]["date"],
                    "minutes": round(sum(part["minutes"] for part in self.parts), 1),
                }
            )
        return rows

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
    """Run the configurations named, or all; with ``--full`` their rows replace those of the page."""
    names = list(dict.fromkeys(claim.config for claim in CLAIMS))
    folder = Path("results/reproduce")
    given = options(__doc__, names, arguments, folder=folder, workers=2, full=False, resume=False, trials=MOST_TRIALS)
    kept = json.loads(file.read_text()) if (file := RAW / STORED).exists() else {"rows": []}
    stored = kept.get("parts", {}) if given.resume else {}
    chosen = given.parts or names
    all_runs = {name: Runs(name, given.folder, given.full, stored.get(name, ())) for name in chosen}
    for of in all_runs.values():
        of.add(of.claims, given.workers)
    more = list(all_runs.values()) if given.full else []
    while more:
        more = [of for of in more if of.add_where_open(given.workers, given.trials)]
    rows = [row for of in all_runs.values() for row in of.rows()]
    for row in rows:
        print(json.dumps(row, ensure_ascii=False), flush=True)
    if given.full:
        write(all_runs, rows, kept)


def write(all_runs: Mapping[str, Runs], rows: list[dict[str, Any]], kept: Mapping[str, Any]) -> None:
    """Write the page, its pictures and ``papers.json``; rows of configurations that did not run stay."""
    RAW.mkdir(exist_ok=True)
    for kept_as, (name, file) in PICTURES.items():
        if name in all_runs:
            shutil.copy(all_runs[name].folder / "seed-0" / file, RAW / f"{kept_as}.png")
    risks = [of for name, of in all_runs.items() if name.startswith("value_at_risk/")]
    drawn = [of for of in risks if any("folder" in part for part in of.parts)]
    if drawn:
        draw(drawn, RAW / "value_at_risk.png")
    every = {(row["config"], row["figure"], row["claim"]): row for row in (*kept["rows"], *rows)}
    order = [(claim.config, claim.figure, claim.text) for claim in CLAIMS]
    parts = {of.name: [_rounded(part) for part in of.parts] for of in risks}
    about, table = environment(), [every[key] for key in order if key in every]
    result = {"environment": about, "rows": table, "parts": kept.get("parts", {}) | parts}
    (RAW / STORED).write_text(json.dumps(result, ensure_ascii=False) + "\n")
    PAGE.write_text(page(table, about, differences(result["parts"])))


def draw(of: Sequence[Runs], path: Path) -> None:
    """log10 regret of the value at risk against rounds, of all methods, a panel of each problem."""
    from PIL import Image

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

    content = picture((rows, 3), (11.0, 3.2 * rows), fill, LOG_TITLE)
    Image.open(io.BytesIO(content)).convert("RGB").quantize(128).save(path, optimize=True)  # a third of the size


def differences(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """The table of V-UCB less all others in log10 regret, early and late, and of ρKG's time over V-UCB's."""
    head = ("problem", "round", "less others", *OTHERS.values(), "ρKG's time over its")
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for given in parts.values():
        for panel in given[0]["regrets"][LATE]:
            for measure, rounds in ((EARLY, "20"), (LATE, "the last")):
                for ours in OURS:
                    if not (mine := by_trial(given, panel, measure, ours)):
                        continue
                    cells = []
                    for other in OTHERS:
                        theirs = {} if other == ours else by_trial(given, panel, measure, other)
                        if len(mine.keys() & theirs.keys()) > 1:
                            trials, _, mean, low, high = paired(mine, theirs)
                            cells.append(f"{mean:.2f} [{low:.2f}, {high:.2f}] ({len(trials)})")
                        else:
                            cells.append("")
                    times = (pd.Series(by_trial(given, panel, SECONDS, name)) for name in ("RHO-KG-APX", ours))
                    time_ratio = operator.truediv(*times).median()
                    cells.append("" if math.isnan(time_ratio) else f"{time_ratio:.2g}")
                    lines.append("| " + " | ".join((panel, rounds, OURS[ours], *cells)) + " |")
    return lines


def page(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], risks: Sequence[str]) -> str:
    """The page of results; ``risks`` are the lines of the table of differences."""
    counts = {word: sum(row["verdict"] == word for row in rows) for word in (YES, NO, OPEN)}
    fewer = sum(row["verdict"] == OPEN and int(row["scale"].split()[0]) < MOST_TRIALS for row in rows)
    versions = ", ".join(f"{name} {about['versions'][name]}" for name in ("torch", "botorch"))
    minutes = {row["config"]: float(row["minutes"] or 0.0) for row in rows}
    lines = [
        "# Results: the papers' figures",
        f"`python -m benchmarks.reproduce --full` runs the headline figures of the five papers and writes this page: "
        f"{math.ceil(sum(minutes.values()))} minutes, {about['cores']} cores ({about['processor']}), {versions}.",
        f"Of {len(rows)} claims {counts[YES]} hold, {counts[NO]} do not, {counts[OPEN]} are open, {fewer} "
        f"of them after fewer than {MOST_TRIALS} trials so far. A difference is "
        'paired, with its 95 % interval over trials. "Below" is yes if the interval is below 0, no if it is above or '
        'within 10 % of the other\'s regret (value at risk: 0.3 in log10), and open otherwise; "on a par" is yes if it '
        "ends within that. Trials are added until nothing is open, up to 40, so a few are decided by chance. Scale is "
        "trials x rounds. Regret is the average over rounds, or log10 of the regret of the value at risk after the "
        "last; best queried is that of the best arm chosen.",
        "![Value at risk: log10 regret against rounds](../../benchmarks/results/papers/value_at_risk.png)",
    ]
    keys = ("figure", "claim", "ours", "verdict", "scale", "config", "revision", "date", "minutes")
    for paper in dict.fromkeys(row["paper"] for row in rows):
        table = ["| " + " | ".join((*keys[:5], "configuration", *keys[6:])) + " |", "| --- " * len(keys) + "|"]
        table += ["| " + " | ".join(str(row[key]) for key in keys) + " |" for row in rows if row["paper"] == paper]
        lines += [f"## {paper}", "\n".join(table)]
        if paper == VAR and len(risks) > 2:
            lines += [
                "Differences in log10 regret of the value at risk (regrets below 1e-4 count as that), V-UCB less "
                "another, with 95 % intervals and the trials; the last column is of seconds to choose a point.",
                "\n".join(risks),
            ]
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
