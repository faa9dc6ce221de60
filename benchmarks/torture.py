"""What damage and sudden death do to result folders and studies: nothing is lost, and nothing is silently wrong.

``python -m benchmarks.torture [--quick | --share 0.1] [--dir FOLDER]`` prints one JSON object a line. The
values are counts of what went wrong: content that changed unsaid, an error that does not name the file and what to do,
an acknowledged tell that is gone, traces that differ. The exit code is 1 if any target was missed.
Processes are forked, so that a kill costs no import of PyTorch.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from bo_robust.experiments.report import write_report
from bo_robust.experiments.results import load
from bo_robust.experiments.store import load_checkpoint, parquet_bytes, read_run
from bo_robust.study import Study, StudyDamaged
from rich.console import Console

from benchmarks.common import environment, report
from benchmarks.study import SETTINGS, SPACE, kills
from bo_robust.experiments import arm_loop
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import RunConfig, parse
from bo_robust.experiments.errors import RunError

REMEDIES = ("Delete it", "start a new run", "starts again", "move it away", "opy back")
LEARNED = {"method": "tgp-ucb", "restarts": 1, "raw_samples": 8, "num_initial": 4}
MISSED: list[str] = []


def config(seed: int = 0, horizon: int = 60) -> RunConfig:
    """Three algorithms on one problem, two trials."""
    problem = {"kind": "rkhs_function", "num_arms": 30, "noise": {"kind": "student_t", "df": 3}}
    algorithms = ["gp-ucb", "random", {"name": "tgp-ucb", "width": {"kind": "tgp", "scale": 0.1}}]
    panel = {"name": "p", "problem": problem}
    return parse({"trials": 2, "horizon": horizon, "seed": seed, "methods": algorithms, "panels": [panel]})


def quiet() -> Console:
    """A console that nobody reads."""
    return Console(file=open(os.devnull, "w"), width=500)


def forked(work: Callable[[], Any]) -> int:
    """The process id of a fork that does the work and exits with 0, or with 1 after an error."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except RunError:
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def exit_of(pid: int) -> int:
    """The exit code of a child, negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def result_folders(folder: Path) -> list[Path]:
    """A finished run with its report, and one with a shard stored and a checkpoint."""
    finished, stopped = folder / "finished", folder / "stopped"
    runs.start(config(), finished, console=quiet())
    write_report(finished)

    def dies() -> None:
        save = arm_loop.save_checkpoint

        def saves_and_dies(path: Path, *content: Any) -> None:
            save(path, *content)
            if path.name.startswith("00-01"):
                os.kill(os.getpid(), signal.SIGKILL)

        vars(arm_loop)["save_checkpoint"] = saves_and_dies
        runs.start(config(horizon=600), stopped, checkpoint_seconds=0.0, console=quiet())

    exit_of(forked(dies))
    assert list(stopped.glob("shards/*"))
    assert list(stopped.glob("checkpoints/*"))
    return [finished, stopped]


def studies(folder: Path) -> list[Path]:
    """Folders of a study that was closed, and of one whose writer was killed."""
    made = [folder / "closed", folder / "killed"]
    for place in made:
        place.mkdir()
        with Study.create(place / "a.study", SPACE, num_initial=10_000, **SETTINGS) as study:
            for trial in study.ask(60):
                study.tell(trial.id, trial.id / 8)

    def dies() -> None:
        with Study.open(made[1] / "a.study") as study:
            for trial in study.ask(30):
                study.tell(trial.id, trial.id / 8)
            os.kill(os.getpid(), signal.SIGKILL)  # between two commits: all that is on disk was acknowledged

    exit_of(forked(dies))
    return made


def content_of_run(folder: Path) -> Any:
    """What a result folder says: its checkpoint, or else all of it resumed; a warning counts as an error."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        checkpoints = [load_checkpoint(path) for path in folder.glob("checkpoints/*")]
    if warned:
        raise RunError(str(warned[0].message))
    if checkpoints:  # read only: to play on would take long
        saved = [content for content in checkpoints if content is not None]
        plain = [({name: t.numpy().tobytes() for name, t in tensors.items()}, meta) for tensors, meta in saved]
        return read_run(folder)[0], plain, parquet_bytes(load(folder, unfinished=True).traces)
    said = io.StringIO()
    runs.resume(folder, console=Console(file=said, width=2000))
    if "Warning" in said.getvalue():
        raise RunError(said.getvalue())
    summary = (folder / "summary.json").read_text()
    return read_run(folder)[0], parquet_bytes(pd.read_parquet(folder / "traces.parquet")), summary


def content_of_study(folder: Path) -> Any:
    """Points and values of a study."""
    with Study.open(folder / "a.study") as study:
        return study.status().asked, [(trial.id, trial.x, value) for trial, value in study.results()]


def flipped(data: bytes, choice: random.Random) -> bytes:
    """One bit of it is another."""
    at = choice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << choice.randrange(8)]) + data[at + 1 :]


def truncated(data: bytes, choice: random.Random) -> bytes:
    """It ends early, often at its start or just before its end."""
    return data[: choice.choice([0, len(data) - 1, choice.randrange(len(data))])]


def damage(
    name: str,
    folders: Sequence[Path],
    harm: Callable[[bytes, random.Random], bytes],
    content: Callable[[Path], Any],
    count: int,
    scratch: Path,
) -> None:
    """Harm one file of a copy after another, in turn, and look at what the copy says."""
    files = [(folder, path) for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [(folder, path) for folder, path in files if path.stat().st_size and "-shm" not in path.name]
    copy = scratch / "copy"
    good: dict[Path, Any] = {}
    found: Counter[str] = Counter()
    for i in range(-len(folders), count):  # first what they say unharmed
        folder, path = (folders[i], None) if i < 0 else files[i % len(files)]
        shutil.copytree(folder, copy)
        if path is not None:
            target = copy / path.relative_to(folder)
            target.write_bytes(harm(target.read_bytes(), random.Random(i)))
        try:
            said = content(copy)
            good.setdefault(folder, said)
            verdict = "harmless" if said == good[folder] else "wrong"
        except (RunError, StudyDamaged, FileExistsError) as error:
            named = path is not None and str(copy) in str(error) and any(remedy in str(error) for remedy in REMEDIES)
            verdict = "said" if named else f"said without file or remedy: {error}"
        except Exception:
            verdict = f"raw error: {traceback.format_exc()}"
        if path is not None:
            found[verdict.split(":")[0]] += 1
        if verdict not in ("said", "harmless"):
            print(f"{path}, {i}: {verdict}", file=sys.stderr)
        shutil.rmtree(copy)
    wrong = count - found["said"] - found["harmless"]
    tell(name, wrong, wrong == 0, {"harmed": count, "files": len(files), **found})


def killed_runs(count: int, scratch: Path) -> None:
    """Kill runs at random moments and resume them, up to five times each, and compare their traces."""
    whole, folder, choice = config(horizon=1000), scratch / "killed_run", random.Random(0)
    runs.start(whole, scratch / "whole", console=quiet())
    good = pd.read_parquet(scratch / "whole" / "traces.parquet")
    found: Counter[str] = Counter()

    def go_on() -> None:
        if (folder / "run.json").exists():
            runs.resume(folder, console=quiet())
        else:
            runs.start(whole, folder, checkpoint_seconds=0.0, console=quiet())

    began = time.perf_counter()
    go_on()
    longest = time.perf_counter() - began
    shutil.rmtree(folder)
    while found["kills"] < count:
        for _ in range(5):
            pid = forked(go_on)
            time.sleep(choice.uniform(0.0, 0.6 * longest))
            os.kill(pid, signal.SIGKILL)
            code = exit_of(pid)
            found["kills"] += code == -signal.SIGKILL
            found["failed"] += code == 1
            found["before_run_json"] += not (folder / "run.json").exists()
            found["with_checkpoint"] += bool(list(folder.glob("checkpoints/0*")))
        found["failed"] += exit_of(forked(go_on)) != 0
        found["runs"] += 1
        traces = folder / "traces.parquet"
        found["differing"] += not (traces.exists() and pd.read_parquet(traces).equals(good))
        found["left_over"] += len(list(folder.rglob(".*.part")))
        shutil.rmtree(folder)
    wrong = found["failed"] + found["differing"] + found["left_over"]
    tell("runs_killed", wrong, wrong == 0, dict(found))


def racing_runs(count: int, scratch: Path) -> None:
    """Two runs into one folder at the same time: one plays it, the other is refused."""
    found: Counter[str] = Counter()
    good = {}
    for seed in (5, 6):
        runs.start(config(seed), scratch / f"alone-{seed}", console=quiet())
        good[seed] = pd.read_parquet(scratch / f"alone-{seed}" / "traces.parquet")
    folder = scratch / "raced"
    for _ in range(count):
        children = [forked(partial(runs.start, config(seed), folder, console=quiet())) for seed in good]
        found["both_or_none"] += sorted(exit_of(pid) for pid in children) != [0, 1]
        seed = read_run(folder)[0]["seeds"]["p"]
        found["mixed"] += not pd.read_parquet(folder / "traces.parquet").equals(good[seed])
        shutil.rmtree(folder)
    wrong = sum(found.values())
    tell("runs_into_one_folder", wrong, wrong == 0, {"pairs": count, **found})


def killed_studies(name: str, count: int, scratch: Path, settings: dict[str, Any]) -> None:
    """Kill writers of a study, after one or four acknowledged tells at the earliest."""
    place = scratch / name
    place.mkdir()
    found = kills(count, place, least=(1, 4), settings=settings)
    wrong = found["lost"] + found["corrupt"] + found["mismatches"]
    tell(name, wrong, wrong == 0 and found["acknowledged"] >= 2 * count, {"kills": count, **found})


def tell(name: str, wrong: int, met: bool, detail: dict[str, Any]) -> None:
    """Report a count of what went wrong; 0 is the target."""
    report(name, wrong, "count", "0", met, detail)
    MISSED.extend([] if met else [name])


def main() -> None:
    """Torture everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of it or less, within a minute, for CI")
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of harms and kills")
    parser.add_argument("--dir", default=None, help="where folders are made; the system's temporary one by default")
    options = parser.parse_args()
    share = 0.08 if options.quick else options.share

    def part(full: int) -> int:
        return max(1, round(share * full))

    print(json.dumps({"environment": environment()}), flush=True)
    arm_loop.CHECKPOINT_PAUSE = 0.0  # a checkpoint after every chunk of rounds, so that kills hit one
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        scratch = Path(name)
        folders, stored = result_folders(scratch), studies(scratch)
        for which, harm, full in (("flips", flipped, 250), ("truncations", truncated, 75)):
            damage(f"{which}_of_result_folders", folders, harm, content_of_run, part(full), scratch)
            damage(f"{which}_of_studies", stored, harm, content_of_study, part(full), scratch)
        racing_runs(part(20), scratch)
        killed_studies("studies_killed", part(100), scratch, SETTINGS)
        killed_studies("studies_that_fit_killed", part(100), scratch, LEARNED)
        killed_runs(part(100), scratch)
    sys.exit(bool(MISSED))


if __name__ == "__main__":
    main()
