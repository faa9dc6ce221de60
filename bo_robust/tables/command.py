"""``bo-robust suggest results.csv``: what to measure next, from a table of readings.

The table is the only state: it is read, and never written. CSV needs no extra; ``--plot`` needs Matplotlib, and .xlsx
openpyxl.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from botorch.exceptions.errors import InfeasibilityError
from botorch.utils.multi_objective.pareto import is_non_dominated

from bo_robust.proposals.suggest import Suggestion, suggest
from bo_robust.tables.campaign import Campaign
from bo_robust.tables.cells import FAILED, TableError, word
from bo_robust.tables.kinds import KINDS
from bo_robust.tables.slips import about_batches, about_several, fitting

SPOKEN = (2.0, 1000.0)  # standard deviations between which the distance of a flagged reading is a number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence on standard error, and exit code 2."""
    try:
        options = _parser().parse_args(argv)
        if options.output is not None and options.output.exists():
            raise TableError(f"{options.output} exists, and is not written over; name another file behind -o.")
        campaign = Campaign(options)
        found, warned = ask(campaign)
        designs = designs_to_print(found)
        rows = [list(campaign.cells_of(x).values()) for x in designs]
        titles = [column.title for column in campaign.columns] + [column.title for column in campaign.carried]
        header = [*campaign.identifiers, *titles]
        csv.writer(sys.stdout, delimiter=campaign.results.separator, lineterminator="\n").writerows([header, *rows])
        sys.stdout.flush()
        missing = _about_missing(campaign, len(designs))
        lines = [*campaign.introduction(), *missing, *_about(found, campaign), *warned]
        print("\n".join(lines), file=sys.stderr)
        if options.output is not None:
            _save(campaign, designs)
        if options.plot is not None:
            from bo_robust.tables.plot import plot

            plot(found, campaign, options.plot)
            print(f"The picture of all readings is in {options.plot}.", file=sys.stderr)
    except (ValueError, ImportError, OSError) as error:
        print(f"bo-robust suggest: {error}", file=sys.stderr)
        return 2
    return 0


def ask(campaign: Campaign) -> tuple[Suggestion, list[str]]:
    """What :func:`suggest` says of a campaign, and its warnings."""
    options, (left, total) = campaign.options, campaign.left
    try:
        with warnings.catch_warnings(record=True) as caught:
            found = suggest(
                campaign.data,
                space=campaign.space,
                # Of a finite space there are no more than those left, and replicates.
                q=options.n if total is None or campaign.conditions else min(options.n, left + len(campaign.read)),
                settings={"outcome_scale": None if options.outcome_scale == "none" else "auto"},
                seed=options.seed,
                device=options.device,
            )
    except InfeasibilityError:
        raise TableError("no design keeps every sum and inequality within the ranges; widen one of them.") from None
    if copies := [slip.rows for slip in found.slips if slip.kind == "same row"]:
        campaign.leave_out_copies(copies)
        return ask(campaign)
    texts = [
        str(warning.message).replace("bo_robust.models.plot_outliers(model)", "--plot FILE.png") for warning in caught
    ]
    return found, [f"Warning: {text}" for text in texts]


def designs_to_print(found: Suggestion) -> list[list[float]]:
    """The designs to measure next."""
    # Where every design of a finite space is taken, the only second readings are those of what looks wrong.
    designs: list[list[float]] = found.X[found.replicate | ~found.exhausted].tolist()
    return designs


def _save(campaign: Campaign, designs: Sequence[list[float]]) -> None:
    """Write the designs into a new file with all columns of the readings, to which they can be added."""
    path, table = campaign.options.output, campaign.results
    rows = [campaign.header, *map(campaign.row_of, designs)]
    ascii_only = all(cell.isascii() for row in rows for cell in row)
    # Excel takes text for UTF-8 where it begins with a mark.
    with path.open("x", newline="", encoding="utf-8" if ascii_only else "utf-8-sig") as file:
        csv.writer(file, delimiter=table.separator).writerows(rows)
    print(f"{path} has these designs with all columns of {table.path}, to be filled in and added.", file=sys.stderr)


def _about_missing(campaign: Campaign, printed: int) -> list[str]:
    """A line about designs that were asked for, where there are no more."""
    if printed == campaign.options.n:
        return []
    what, hint = "design of these steps and levels", " --bounds, --levels or --continuous allow others."
    if campaign.listed is not None:
        what, hint = "recipe of the list", ""
    return [f"{printed} of {campaign.options.n} designs: every other {what} is measured, pending or failed.{hint}"]


def _about(found: Suggestion, campaign: Campaign) -> list[str]:
    """Lines about readings that look wrong, what to measure again, and the design to use now."""
    lines = [found.chance] if found.chance else []
    if found.model is None:
        return lines
    lines += _about_readings(found, campaign)
    if not (found.outliers | found.held).any():
        few = len(campaign.read) <= 2 * len(campaign.columns) + 2  # where the search begins
        lines.append(f"No reading looks wrong.{' Among so few, a wrong one may pass.' if few else ''}")
    held, wrong = (
        [list(campaign.X[campaign.read[row]]) for row in rows.nonzero().flatten().tolist()]
        for rows in (found.held, found.outliers)
    )
    for x in found.X[found.replicate].tolist():
        design = ", ".join(f"{c.name} = {c.decode(v)}" for c, v in zip(campaign.columns, x, strict=True))
        reason = "but far from all others" if x in held else "but looks wrong"
        if x not in held + wrong:
            reason = "and only one other reading confirms it"
        lines.append(f"Measure again: {design}; its reading is the best, {reason}.")
    if len(campaign.objectives) > 1:
        return lines + _front(found, campaign)
    return lines + _recommended(found, campaign)


def _about_readings(found: Suggestion, campaign: Campaign) -> list[str]:
    """Lines about the scale of each outcome, its batches, and its flagged and held readings."""
    lines = []
    models: Any = getattr(found.model, "models", [found.model])
    modeled = [j for j in range(len(campaign.outcomes)) if len(_rows_of(campaign, j))]
    for j, model in zip(modeled, models, strict=True):
        name, goal = campaign.outcomes[j], j < len(campaign.objectives)
        rows = [campaign.read[row] for row in _rows_of(campaign, j)]
        if not model.outcome_scale.is_identity:
            # The model sees an objective that is minimized with its sign turned.
            turned = goal and not campaign.maximize[j]
            scale = model.outcome_scale._replace(sign=-model.outcome_scale.sign) if turned else model.outcome_scale
            lines.append(
                f"{name} is modeled on a scale of its own ({scale}), on which factors count more than differences; "
                "--outcome-scale none models the readings as they are."
            )
        if campaign.batch is not None:
            labels = sorted({campaign.batch[i] for i in _rows_of(campaign, j)})
            column = str(campaign.options.batch)
            titles = [label if column.casefold() in label.casefold() else f"{column} {label}" for label in labels]
            lines += about_batches(model, titles, name)
        numbers = [campaign.results.lines[row] for row in rows]
        lines += [about_several(slip, name, numbers) for slip in model.slips if slip.several]
        expected = found.expected[_rows_of(campaign, j), j].tolist() if goal else [math.nan] * len(rows)
        texts = [f"{name} = {campaign.results.cells(name)[row]}" for row in rows]
        lines += [*_about_flagged(model, numbers, texts, expected), *_about_held(model, numbers, texts, name, goal)]
    return lines


def _about_flagged(
    model: Any, numbers: Sequence[int], texts: Sequence[str], expected: Sequence[float]
) -> Iterator[str]:
    """Lines about flagged readings, but those that :func:`about_several` has."""
    replicates, together = model.replicate_mask(), {row for slip in model.slips if slip.several for row in slip.rows}
    for place in (~model.inlier_mask).nonzero().flatten().tolist():
        if place in together:
            continue
        what = _distance(float(model.loo_zscore[place]), expected[place])
        if not model.within_limits()[place]:
            what = "is beyond the limits"
        same = (replicates[place] & model.inlier_mask).nonzero().flatten().tolist()
        other = f" Row {numbers[same[0]]} repeats its design" if same else ""
        if same:
            other += "; a third reading decides." if int(replicates[place].sum()) == 1 else ", as others do."
        yield f"Row {numbers[place]} looks wrong: {texts[place]} {what}{fitting(model.slips, place, numbers)}.{other}"


def _about_held(model: Any, numbers: Sequence[int], texts: Sequence[str], name: str, goal: bool) -> Iterator[str]:
    """Lines about readings that are held on the good side."""
    twice = model.replicate_mask().any(1)
    for place in model.verdict(maximize=goal).held.nonzero().flatten().tolist():
        then = "Measure it again before you rely on it"
        if twice[place]:
            then = "The other reading of its design disagrees"
        yield (
            f"Row {numbers[place]}: {texts[place]} is far from all others that fit, and plausible only if {name} "
            f"varies by factors{fitting(model.slips, place, numbers)}. {then}."
        )


def _distance(zscore: float, expected: float) -> str:
    """How far off a flagged reading is; a number of standard deviations only where it says something."""
    others = "what others predict" if math.isnan(expected) else f"{expected:.4g}, which the others predict"
    low, high = SPOKEN
    if abs(zscore) < low:
        return f"is not {others}"
    return f"is {abs(zscore):.3g} standard deviations from {others}" if abs(zscore) < high else f"is far from {others}"


def _recommended(found: Suggestion, campaign: Campaign) -> list[str]:
    """Lines about the design to use now."""
    if found.best is None:
        return _none_yet(campaign)
    columns, row = campaign.columns, campaign.read[found.best]
    design = ", ".join(f"{c.name} = {campaign.results.cells(c.name)[row]}" for c in columns if not c.observed)
    low, high = found.interval
    tail = f" in the worst {100.0 * campaign.options.worst:g} % of conditions" if campaign.space.conditions else ""
    line = (
        f"Recommended now: row {campaign.results.lines[row]} ({design}), expected {campaign.objectives[0]}{tail} "
        f"{found.mean:.4g} (95 % from {low:.4g} to {high:.4g})."
    )
    beyond = [
        c.title
        for c, v in zip(columns, campaign.X[row], strict=True)
        if not (c.observed or c.span[0] <= v <= c.span[1])
    ]
    lines = [line, f"It lies outside the range that was given for {', '.join(beyond)}."] if beyond else [line]
    if low < 0.0 < campaign.Y.min() and campaign.limits == [None]:
        lines.append(f"Say --limits {word(f'{campaign.objectives[0]}=0:')} if nothing below 0 can be.")
    if any(campaign.X[row][i] != value for i, value in campaign.space.fixed.items()):
        lines.append("It has other values than --fix says, which is for proposals alone.")
    return lines + _beyond_limits(campaign)


def _beyond_limits(campaign: Campaign) -> list[str]:
    count = int((~campaign.keeps_limits).sum())
    lie, are = ("1 measured design lies", "is") if count == 1 else (f"{count} measured designs lie", "are")
    why = "outside the ranges, levels or sums given"
    return [f"{lie} {why}, and {are} not recommended."] if count else []


def _none_yet(campaign: Campaign) -> list[str]:
    return _beyond_limits(campaign) or ["No design can be recommended yet."]


def _front(found: Suggestion, campaign: Campaign) -> list[str]:
    """Lines of measured designs that no other is expected to beat in all objectives, of readings that look right."""
    signs = torch.tensor(campaign.maximize, dtype=torch.float64) * 2.0 - 1.0
    keeps = torch.from_numpy(campaign.keeps_limits & ~(campaign.C > 0.0).any(-1))
    may = (keeps & ~found.outliers & ~found.held).nonzero().flatten()
    if len(may) == 0:
        return _none_yet(campaign)
    front = may[is_non_dominated(signs * found.expected[may])].tolist()
    lines = ["Best compromises now (no other design is expected to be better in all):"]
    for row in sorted(front, key=lambda i: -float(signs[0] * found.expected[i, 0])):
        at = campaign.read[row]
        design = ", ".join(f"{c.name} = {campaign.results.cells(c.name)[at]}" for c in campaign.columns)
        values = ", ".join(f"{name} {float(found.expected[row, j]):.4g}" for j, name in enumerate(campaign.objectives))
        lines.append(f"  row {campaign.results.lines[at]} ({design}), expected {values}")
    return lines


def _rows_of(campaign: Campaign, j: int) -> list[int]:
    """Places, among the rows that were read, of the readings of an outcome."""
    if j < len(campaign.objectives):
        return list(range(len(campaign.read)))
    return np.flatnonzero(np.isfinite(campaign.C[:, j - len(campaign.objectives)])).tolist()


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, and name the nearest option."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split("=")[0].split()
        if message.startswith("unrecognized") and unknown[0].startswith("-"):
            options = [option for action in self._actions for option in action.option_strings]
            close = difflib.get_close_matches(unknown[0], options, n=1, cutoff=0.0)
            message = f"there is no option {unknown[0]}; did you mean {close[0]}? (--help lists all)"
        elif message.startswith("unrecognized"):
            message = (
                f"{unknown[0]!r} follows no option that takes it; repeat an option such as --maximize for each column"
            )
        raise TableError(f"{message}." if not message.endswith((".", ")")) else message)


def _csv_path(text: str) -> Path:
    if Path(text).suffix.lower().startswith((".xls", ".ods")):
        raise argparse.ArgumentTypeError(f"{text} would hold text; name a .csv, which a spreadsheet opens")
    return Path(text)


def _designs(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of designs, such as 3, not {text}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="bo-robust suggest",
        description="Suggest the designs to measure next, from a table of readings so far, some of which may be "
        "wrong. The designs go to standard output as CSV, what is said about the readings to standard error.",
        epilog="COLUMNs are names in the first row, with or without a unit in brackets.",
    )
    parser.add_argument("results", help=f"readings so far, .csv or .xlsx; blank: pending; '{FAILED}': failed")
    for option, metavar, what in (
        ("--maximize", "COLUMN", "an outcome; may be repeated, and --minimize beside it"),
        ("--minimize", "COLUMN", "an outcome to make small"),
        ("--target", "COLUMN=NUMBER", "an outcome to bring as near as possible to a number"),
        ("--require", '"COLUMN >= NUMBER"', "what another outcome must keep, <= or >="),
    ):
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=what)
    parser.add_argument("--candidates", metavar="FILE", help="designs to choose from; default: the columns' ranges")
    parser.add_argument("-n", type=_designs, default=1, help="number of designs; default 1")
    lists = {"parameters": "columns that are chosen; all others are none"}
    lists |= {option: what for kind in KINDS for option, what in kind.options.items()}
    lists["ignore"] = "columns that are no parameters, such as dates and notes"
    lists["condition"] = "columns that are observed, such as humidity, and can be set for a test"
    lists["observe"] = "columns that are observed and cannot be set"
    for name, what in lists.items():
        parser.add_argument(f"--{name}", nargs="+", action="extend", default=[], metavar="COLUMN", help=what)
    parser.add_argument(
        "--batch", metavar="COLUMN", help="a batch, day or instrument, whose readings share a deviation"
    )
    parser.add_argument("--worst", type=float, default=0.1, help="share of conditions to be good in; default 0.1")
    for name, metavar, what in (
        ("bounds", "COLUMN=LOW:HIGH", "range of a parameter; default: that of its column"),
        ("levels", "COLUMN=A,B,C", "all values of a parameter, untried ones included"),
        ("step", "COLUMN=NUMBER", "step of a parameter; default: the one that all its values keep"),
        ("fix", "COLUMN=VALUE", "a value that proposals have"),
        ("limits", "[COLUMN=]LOW:HIGH", "values that an outcome can have; a reading beyond is flagged"),
        ("sum", "A,B,C=NUMBER", "a sum that proposals keep; 'none': also where all rows have one"),
        ("where", '"A + 2 B <= NUMBER"', "an inequality that proposals keep"),
    ):
        parser.add_argument(f"--{name}", nargs="+", action="extend", default=[], metavar=metavar, help=what)
    parser.add_argument("--decimal", choices=(".", ","), help="the decimal mark, where numbers do not show it")
    parser.add_argument(
        "--outcome-scale",
        choices=("auto", "none"),
        default="auto",
        help="whether a logarithm or a root of the readings may be modeled, which the data choose; default auto",
    )
    parser.add_argument(
        "-o", "--output", type=_csv_path, metavar="CSV", help="a new file, with all columns of the readings"
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw readings, predictions and parameters")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N; default cpu, faster below 300 readings")
    return parser
