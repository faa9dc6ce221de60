"""The commands that run experiments: ``bo-robust run | prepare | list``; ``suggest`` needs no extra."""

import io
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

# The commands import what they need themselves: `--help` answers without loading PyTorch.
from bo_robust.experiments.errors import RunError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Run experiments from configuration files; `bo-robust suggest --help`: what to measure next, from a table.",
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="YAML file, or the name of a shipped configuration: quickstart.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, dotted keys; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Result folder; results/NAME by default.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N, or auto, by the number of arms and trials.")] = "auto",
    trials: Annotated[int | None, typer.Option(help="Trials of every panel.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Rounds of every panel.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of data sets; BO_ROBUST_DATA by default.")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads of torch. Small batched algebra is fastest on one.")] = 1,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes side by side, to the same traces; by default one, or a cluster."),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="Of joblib: loky, or ray or dask for several machines, which must all see the folder.")
    ] = "loky",
    trials_per_job: Annotated[
        int | None, typer.Option(min=1, help="Trials run at once, all by default; others may change last bits.")
    ] = None,
) -> None:
    """Run every panel of a configuration and report regret. The same command again runs only what is missing."""
    import torch

    from bo_robust.experiments import files
    from bo_robust.experiments import run as runs

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 1 <= threads <= cores:
        raise RunError(f"--threads must be between 1 and the {cores} cores of this machine, got {threads}.")
    torch.set_num_threads(threads)
    config_ = files.load_config(config, set_ or (), trials=trials, horizon=horizon)
    arguments: dict[str, Any] = {
        "workers": workers,
        "backend": backend,
        "trials_per_job": trials_per_job,
        "console": _console(),
    }
    try:
        runs.start(config_, out or Path("results") / config_.name, device=device, data_dir=data_dir, **arguments)
    except KeyboardInterrupt:
        print("bo-robust: interrupted; the same command again runs what is missing.", file=sys.stderr)
        raise typer.Exit(130) from None


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="A data set; `bo-robust list` has them, and where they come from.")],
    file: Annotated[Path, typer.Argument(help="What you downloaded: a file, or a folder of files.")],
    data_dir: Annotated[Path | None, typer.Option(help="Folder of data sets; BO_ROBUST_DATA by default.")] = None,
) -> None:
    """Convert a download to the file that a problem reads, and check that it is the data set."""
    from bo_robust.experiments.problems import data

    folder = data.data_folder(data_dir)
    if folder is None:
        raise RunError("give the folder of data sets, --data-dir FOLDER or the environment variable BO_ROBUST_DATA.")
    try:
        print(f"Wrote {data.prepare(name, file, folder)}.")
    except ValueError as error:
        raise RunError(str(error)) from None


@app.command("list")
def list_(name: Annotated[str | None, typer.Argument(help="Show the settings of this one.")] = None) -> None:
    """List configurations, methods, problems, features, widths and truncations, or the settings of one."""
    from bo_robust.experiments import listing

    console = _console()
    if name is not None:
        listed = {f"[bold]{name}[/bold], of {title}": lines for title, lines in listing.settings_of(name).items()}
    else:
        everything = listing.everything().items()
        listed = {f"[bold]{title}[/bold]": [f"{n:26s} {line}" for n, line in of.items()] for title, of in everything}
    for title, lines in listed.items():
        console.print(title)
        for line in lines:
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _console() -> Console:
    """A console, wide where nobody watches so that logs keep whole lines."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def main() -> None:
    """Run the command of ``sys.argv`` and exit.

    What a user can put right is one line on the standard error and exit code 2, without a traceback; an interrupted
    run has exit code 130.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (RunError, OSError) as error:
        print(f"bo-robust: {error}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:  # click's usage errors know how to show themselves
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            sys.exit(error.exit_code)
        raise
