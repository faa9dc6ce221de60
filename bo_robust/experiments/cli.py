"""The command line: ``bo-robust run | list | plot | report | resume``."""

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

# The commands import what they need themselves: `--help` answers without loading PyTorch.
from bo_robust.command_line import run_app
from bo_robust.executors import Executor
from bo_robust.experiments.errors import RunError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Play experiments, and look at what came of them.",
    pretty_exceptions_enable=False,
)

Threads = Annotated[int, typer.Option(help="CPU threads of torch. Small batched algebra is fastest on one.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes that play side by side, to the same traces.")]
ExecutorName = Annotated[
    str | None, typer.Option("--executor", help="ray: play on Ray, on this machine or with --address a cluster.")
]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster: HOST:PORT, or auto. This machine by default.")]


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="YAML file, or the name of a shipped configuration: quickstart.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, dotted keys; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Result folder; results/NAME by default.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    trials: Annotated[int | None, typer.Option(help="Trials of every panel.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Rounds of every panel.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of data sets; BO_ROBUST_DATA by default.")] = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="Seconds between checkpoints.")] = 5.0,
    threads: Threads = 1,
    workers: Workers = 1,
    executor: ExecutorName = None,
    address: Address = None,
    shard: Annotated[
        int | None, typer.Option(min=1, help="Trials played at once, all by default; others may change last bits.")
    ] = None,
) -> None:
    """Play every panel of a configuration and report regret."""
    from bo_robust.experiments import files
    from bo_robust.experiments import run as runs

    _set_threads(threads)
    config_ = files.load_config(config, set_ or (), trials=trials, horizon=horizon)
    with (
        folder_of(config_.name, out) as folder,
        _interruptible(folder),
        _executor(executor, address, device, threads) as place,
    ):
        runs.start(
            config_,
            folder,
            device=device,
            data_dir=data_dir,
            checkpoint_seconds=checkpoint_seconds,
            workers=workers,
            executor=place,
            shard=shard,
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
    from bo_robust.experiments import run as runs
    from bo_robust.experiments.store import read_run

    _set_threads(threads)
    device = read_run(folder)[0]["device"]
    with _interruptible(folder), _executor(executor, address, device, threads) as place:
        runs.resume(folder, data_dir=data_dir, force=force, workers=workers, executor=place, console=_console())


@app.command()
def plot(folder: Annotated[Path, typer.Argument(help="Result folder of a finished run.")]) -> None:
    """Draw the pictures and print the table again from the stored traces."""
    from bo_robust.experiments import run as runs

    runs.finish(folder, console=_console())


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="Result folder, of a finished run or not.")]) -> None:
    """Write report.html: tables, pictures, settings and provenance in one page that needs no network."""
    from bo_robust.experiments.report import write_report

    _console().print(f"Report in {write_report(folder)}", markup=False, soft_wrap=True)


@app.command("list")
def list_() -> None:
    """List configurations, methods, problems, features, widths and truncations."""
    from bo_robust.experiments import listing

    console = _console()
    for title, entries in listing.everything().items():
        console.print(f"[bold]{title}[/bold]")
        for name, line in entries.items():
            console.print(f"  {name:26s} {line}", markup=False, highlight=False, soft_wrap=True)


def _set_threads(threads: int) -> None:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 1 <= threads <= cores:
        raise RunError(f"--threads must be between 1 and the {cores} cores of this machine, got {threads}.")
    torch.set_num_threads(threads)


@contextmanager
def _executor(name: str | None, address: str | None, device: str, threads: int) -> Iterator[Executor | None]:
    """The executor other than this process: tasks on Ray, each with ``threads`` CPUs and, on CUDA, one GPU."""
    if name is None:
        if address is not None:
            raise RunError("--address is of a Ray cluster; add --executor ray.")
        yield None
        return
    if name != "ray":
        from bo_robust.validation import quoted

        raise RunError(f"unknown --executor {quoted(name)}; there is ray, and without it this machine.")
    if device.startswith("cuda:"):
        raise RunError(f"Ray says which GPU a job has; with --executor ray give --device cuda, not {device}.")
    try:
        import ray

        from bo_robust.integrations.ray import RayExecutor
    except ImportError as error:
        raise RunError(f"--executor ray needs Ray ({error}): pip install 'bo_robust[ray]'.") from None
    joined = not ray.is_initialized()
    try:
        if joined:
            ray.init(address=address or "auto")
        executor = RayExecutor(cpus=threads, gpus=float(device == "cuda"))
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RunError(f"Ray cannot be used: {error} Start it with `ray start --head`, or give --address.") from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray has put its own in place
    try:
        yield executor
    finally:
        if joined:
            ray.shutdown()


@contextmanager
def folder_of(name: str, out: Path | None) -> Iterator[Path]:
    """``out``, or a new folder: the first free one of results/NAME, NAME-2, -3, ..., deleted if it stays empty."""
    if out is not None:
        yield out
        return
    folder, k = Path("results") / name, 1
    while True:
        try:
            folder.mkdir(parents=True)  # made, not only looked for: another run may look at the same time
            break
        except FileExistsError:
            k += 1
            folder = folder.with_name(f"{name}-{k}")
        except OSError as error:
            raise RunError(f"cannot make {folder} ({error.strerror}); choose a folder with --out.") from None
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def _console() -> Console:
    """A console, wide where nobody watches so that logs keep whole lines."""
    return Console() if sys.stdout.isatty() else Console(width=120)


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print(f"bo-robust: interrupted; `bo-robust resume {folder}` goes on from the last checkpoint.", file=sys.stderr)
        raise typer.Exit(130) from None


def main() -> None:
    """Entry point: as :func:`bo_robust.command_line.run_app`, and exit code 130 when interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    run_app(app, "bo-robust", RunError)


if __name__ == "__main__":
    main()
