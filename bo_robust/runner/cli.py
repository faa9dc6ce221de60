"""The command line: ``bo-robust run | list | plot | report | resume | doctor``."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bo_robust.runner.errors import RunError
from bo_robust.study.executors import Executor

__all__ = ["app", "main"]

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

Threads = Annotated[int, typer.Option(help="CPU threads of torch. Small batched algebra is fastest on one.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes that play algorithms side by side, to the same traces.")]

ExecutorName = Annotated[
    str | None, typer.Option("--executor", help="ray: play on Ray, on this machine or with --address a cluster.")
]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster: HOST:PORT, or auto. This machine by default.")]


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="YAML configuration, e.g. configs/quickstart.yaml.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, dotted keys; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Result folder; results/NAME by default.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    trials: Annotated[int | None, typer.Option(help="Trials (repetitions) of every panel.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Rounds of every panel.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of data sets; BO_ROBUST_DATA by default.")] = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="Seconds between checkpoints.")] = 5.0,
    threads: Threads = 1,
    workers: Workers = 1,
    executor: ExecutorName = None,
    address: Address = None,
    block: Annotated[
        int | None, typer.Option(min=1, help="Trials played at once, all by default; others may change last bits.")
    ] = None,
) -> None:
    """Play every panel of a configuration and report regret."""
    from bo_robust.runner import config as configs
    from bo_robust.runner import run as runs
    from bo_robust.runner.robust import config as robust_configs

    _set_threads(threads)
    if robust_configs.is_robust(config):
        _one_worker(workers)
        if block is not None:
            raise RunError("runs of the value_at_risk loop are played by repetitions; leave out --block.")
        from bo_robust.runner.robust import run as robust_runs

        robust = robust_configs.load(config, set_ or (), repetitions=trials, rounds=horizon)
        folder = _default_folder(robust.name) if out is None else out
        with _interruptible(folder), _executor(executor, address, device, threads) as place:
            robust_runs.start(robust, folder, device=device, data_dir=data_dir, executor=place, console=_console())
        return
    loaded = configs.load(config, set_ or (), trials=trials, horizon=horizon)
    folder = _default_folder(loaded.name) if out is None else out
    with _interruptible(folder), _executor(executor, address, device, threads) as place:
        runs.start(
            loaded,
            folder,
            device=device,
            data_dir=data_dir,
            checkpoint_seconds=checkpoint_seconds,
            workers=workers,
            executor=place,
            block=block,
            console=_console(),
        )


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="Result folder of an interrupted run.")],
    data_dir: Annotated[Path | None, typer.Option(help="Folder of data sets, if it moved.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Go on although code or machine changed.")] = False,
    threads: Threads = 1,
    workers: Workers = 1,
    executor: ExecutorName = None,
    address: Address = None,
) -> None:
    """Go on with an interrupted run; its traces end bit-identical to an uninterrupted one."""
    from bo_robust.runner import run as runs
    from bo_robust.runner.robust import config as robust_configs

    _set_threads(threads)
    if robust_configs.is_robust_folder(folder):
        from bo_robust.runner.robust import run as robust_runs

        _one_worker(workers)
        with _interruptible(folder), _executor(executor, address, _device_of(folder), threads) as place:
            robust_runs.resume(folder, data_dir=data_dir, force=force, executor=place, console=_console())
        return
    with _interruptible(folder), _executor(executor, address, _device_of(folder), threads) as place:
        runs.resume(folder, data_dir=data_dir, force=force, workers=workers, executor=place, console=_console())


@app.command()
def plot(folder: Annotated[Path, typer.Argument(help="Result folder of a finished run.")]) -> None:
    """Draw the pictures and print the table again from the stored traces."""
    from bo_robust.runner import run as runs
    from bo_robust.runner.robust import config as robust_configs

    finish = runs.finish
    if robust_configs.is_robust_folder(folder):
        from bo_robust.runner.robust.run import finish
    finish(folder, console=_console())


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="Result folder, of a finished run or not.")]) -> None:
    """Write report.html: tables, pictures, settings and provenance in one page that needs no network."""
    from bo_robust.runner.html import write_report

    _console().print(f"Report in {write_report(folder)}", markup=False, soft_wrap=True)


@app.command("list")
def list_() -> None:
    """List algorithms, problems, features, widths and truncation levels; problems and methods of robust runs."""
    from bo_robust.algorithms import ALGORITHMS
    from bo_robust.problems import PROBLEMS
    from bo_robust.problems.robust import ROBUST_PROBLEMS
    from bo_robust.runner.build import FEATURES
    from bo_robust.runner.robust.methods import METHODS
    from bo_robust.schedules import TRUNCATIONS, WIDTHS

    console = _console()
    for title, registry in (
        ("algorithms", ALGORITHMS),
        ("problems", PROBLEMS),
        ("features", FEATURES),
        ("widths", WIDTHS),
        ("truncation levels", TRUNCATIONS),
        ("value-at-risk problems (loop: value_at_risk)", ROBUST_PROBLEMS),
        ("methods of the value_at_risk loop", METHODS),
    ):
        console.print(f"[bold]{title}[/bold]")
        for name, item in registry.items():
            first = (item.__doc__ or "").strip().splitlines()[0]
            console.print(f"  {name:18s} {first}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def doctor(json_: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False) -> None:
    """Show torch build, devices, Triton, threads, data folder, optional packages, and what would be used."""
    from bo_robust.runner import doctor as doctors

    found = doctors.examine()
    if json_:
        print(json.dumps(found))
    else:
        doctors.show(found, _console())


def _set_threads(threads: int) -> None:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 1 <= threads <= cores:
        raise RunError(f"--threads must be between 1 and the {cores} cores of this machine, got {threads}.")
    torch.set_num_threads(threads)


def _one_worker(workers: int) -> None:
    if workers > 1:
        raise RunError("runs of the value_at_risk loop are played in one process; leave out --workers.")


@contextmanager
def _executor(name: str | None, address: str | None, device: str, threads: int) -> Iterator[Executor | None]:
    """Where to play, other than in this process: tasks of Ray of as many CPUs as threads, on CUDA one GPU each."""
    if name is None:
        if address is not None:
            raise RunError("--address is of a Ray cluster; add --executor ray.")
        yield None
        return
    if name != "ray":
        raise RunError(f"unknown --executor {name!r}; there is ray, and without it this machine.")
    if device.startswith("cuda:"):
        raise RunError(f"Ray says which GPU a block has; with --executor ray give --device cuda, not {device}.")
    try:
        from bo_robust.integrations.ray import RayExecutor
    except ImportError as error:
        raise RunError(f"--executor ray needs Ray ({error}): pip install 'bo_robust[ray]'.") from None
    try:
        executor = RayExecutor(cpus=threads, gpus=float(device == "cuda"), address=address)
    except (ValueError, RuntimeError) as error:
        raise RunError(f"Ray cannot be used: {error}") from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray has put its own in place
    with executor:
        yield executor


def _device_of(folder: Path) -> str:
    """The device of a run; whatever is wrong with its folder is said when it is resumed."""
    try:
        return str(json.loads((folder / "run.json").read_text(encoding="utf-8"))["device"])
    except (OSError, ValueError, KeyError, TypeError):
        return "cpu"


def _default_folder(name: str) -> Path:
    """results/NAME, or the first free of results/NAME-2, -3, ..."""
    base = Path("results") / name
    folder, k = base, 1
    while folder.exists():
        k += 1
        folder = base.with_name(f"{name}-{k}")
    return folder


def _console() -> Console:
    """Wide where nobody watches: logs keep whole lines."""
    return Console() if sys.stdout.isatty() else Console(width=120)


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print(f"bo-robust: interrupted; `bo-robust resume {folder}` goes on from the last checkpoint.", file=sys.stderr)
        raise typer.Exit(130) from None


def main() -> None:
    """Entry point: what a user can put right is one line on stderr and exit code 2; interrupted is 130."""
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


if __name__ == "__main__":
    main()
