"""``python -m bo_robust.tails FILE.csv --column NAME``: alpha, v, noise_var and a truncation rule for a column."""

import textwrap
import warnings
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from bo_robust.command_line import run_app
from bo_robust.tails.constants import choose_constants
from bo_robust.tails.plots import tail_plot
from bo_robust.validation import quoted

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def tails(
    file: Annotated[Path, typer.Argument(help="Table with a header line, e.g. rewards.csv or rewards.csv.gz.")],
    column: Annotated[str, typer.Option(help="Name of the column of rewards.")],
    arms: Annotated[str | None, typer.Option(help="Name of the column that tells each reward's arm.")] = None,
    horizon: Annotated[int, typer.Option(help="Number of rounds to be played.")] = 1000,
    delta: Annotated[float, typer.Option(help="Intervals and limits fail with this probability.")] = 0.1,
    f_scale: Annotated[float | None, typer.Option(help="Largest |f - centre| expected, in units of y.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of the tail to write, e.g. tail.png.")] = None,
) -> None:
    """Recommend centre, scale, alpha, v, noise_var and a truncation rule for a column of past rewards."""
    table = pd.read_csv(file)
    for name in (column, arms):
        if name is not None and name not in table:
            raise ValueError(f"{file} has no column {quoted(name)}; it has {', '.join(map(str, table.columns))}.")
    labels = None if arms is None else table[arms]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the text says the same
        found = choose_constants(table[column], labels, horizon=horizon, delta=delta, f_scale=f_scale)
    print(textwrap.fill(found.text, 100))
    if plot is not None:
        tail_plot(table[column], plot, arms=labels)


if __name__ == "__main__":
    run_app(app, "bo_robust.tails", ValueError)
