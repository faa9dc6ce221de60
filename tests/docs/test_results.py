"""Figures: pages of results are what their files give, and what pages and README say stands in the files."""

import re

import pytest

from docs.hooks import RESULTS, ROOT
from docs.make_results import TEMPLATES, columns_table, figure, page

PAGES = ROOT / "docs" / "pages"
README = ROOT / "README.md"
REPORT = "robustness/doors_report.jsonl"
RIVALS = "value_at_risk/rivals_summary.jsonl"
BUMPY = (RIVALS, "bumpy: lower than MC-VaR")
SMOOTH = (RIVALS, "smooth: lower than MC-VaR")
LOOPS = "value_at_risk/fault_loops_summary.jsonl"
TUNING = "value_at_risk/fine_tuning_summary.jsonl"
SCALING, SLOPES = "bkb/scaling.jsonl", "slopes.jsonl"
SYNTHETIC = ("curves/srinivas_synthetic.json", "-")
WINS = "unknown_hyperparameters/wins/wins.jsonl"
GAIN = (REPORT, "10% 10sd either: diff against SingleTaskGP", "value", "fold .0f")
KNOWN = (REPORT, "10% 10sd either: known against SingleTaskGP", "value", "fold .0f")
OF_STUDY = (REPORT, "10% 10sd either: study against SingleTaskGP", "value", "fold .0f")
MANY = (REPORT, "30% 10sd either: diff against SingleTaskGP", "value", "fold .0f")
MANY_KNOWN = (REPORT, "30% 10sd either: known against SingleTaskGP", "value", "fold .0f")
PEAKS = (REPORT, "clean narrow peaks: diff against SingleTaskGP", "value", ".2f")
WINSORISED = (REPORT, "10% 10sd either: winsorised against SingleTaskGP", "value", "fold .1f")

EVERY = [
    (REPORT, f"every faulty regime: {door}, share of what knowing the faults gains", "value", "percent .0f")
    for door in ("diff", "study", "rcgp")
]

# By page what it says, and the figure in it: file, row, path and format of docs.make_results.
SAID = {
    "README.md": [
        ("the loop has {} % of what knowing the faults gains", EVERY[0]),
        ("knowing the faults gains, `Study` {} %", EVERY[1]),
        ("the best peer {} %", EVERY[2]),
        ("has {} times less regret after 40 evaluations", GAIN),
        ("Winsorised rewards make it {} times less", WINSORISED),
        ("knowing the faults {} times", KNOWN),
        ("`Study` {} times less", OF_STUDY),
        ("wrong the loop has {} times less", MANY),
        ("knowing them {} times", MANY_KNOWN),
        ("the loop is {} decades (factors of ten) behind", PEAKS),
        (
            "on {} of 10 functions with d = 2",
            ("coco/coco_d2.jsonl", "d=2: functions on which RobustGP hits more targets than both", "value", ".0f"),
        ),
        (
            "on {} with d = 5",
            ("coco/coco_d5.jsonl", "d=5: functions on which RobustGP hits more targets than both", "value", ".0f"),
        ),
        ("fit in {} of 25 worlds", (WINS, "worlds in which it is better than MLE by 30 % or more", "value", ".0f")),
        ("BoTorch's route on {} of 9 bumpy", (*BUMPY, "value", ".0f")),
        ("problems, significantly on {},", (*BUMPY, "detail > significantly", "d")),
        ("significantly on {} of [4 smooth ones]", (*SMOOTH, "detail > significantly", "d")),
    ],
    "heavy_tails.md": [
        ("in ten wrong it has {} times less", MANY),
        ("knowing them {}.", MANY_KNOWN),
        ("loops are {} decades behind", PEAKS),
        ("{} times less regret after 40 evaluations than with `SingleTaskGP`", GAIN),
        ("with Winsorised rewards it has {} times less", WINSORISED),
        ("knowing the wrong readings {} times less", KNOWN),
    ],
    "gp_ucb.md": [
        ("after 1000 rounds is {},", (*SYNTHETIC, "panels > 0 > algorithms > GP-UCB /5 > average_regret > 0", ".4f")),
        ("improvement's is {}.", (*SYNTHETIC, "panels > 0 > algorithms > EI > average_regret > 0", ".4f")),
        ("width it is {},", (*SYNTHETIC, "panels > 0 > algorithms > GP-UCB theory > average_regret > 0", ".4f")),
        ("at all {}.", (*SYNTHETIC, "panels > 0 > algorithms > mean > average_regret > 0", ".3f")),
    ],
    "many_rounds_and_arms.md": [
        ("`MiniGPUCB` takes {} ms", (SCALING, "n=100000, mini-GP-UCB: a round", "value", ".2f")),
        ("engine takes {} ms", (SCALING, "n=100000, exact GP-UCB: a round", "value", ".1f")),
        ("no rows, {} ms", (SCALING, "n=100000, BBKB: a round", "value", ".2f")),
        ("take {} GiB", ("bkb/million_10000.jsonl", "BBKB, n=1e6, d=6, T=10000: peak memory", "value", ".2f")),
        ("`SingleTaskGP` takes {} s", (SCALING, "SingleTaskGP: fit at n=2000", "value", ".0f")),
        (
            "Two on two million arms were {} times as fast",
            ("bkb/ranks.jsonl", "BBKB, n=2e+06, 40 rounds: two processes against one", "value", ".1f"),
        ),
        (
            "4 of 5,400 arms take {} MiB",
            (SLOPES, "he-gp-ucb, kernels of 4 candidates: memory against n", "detail > MiB > 3", ".0f"),
        ),
        ("3,000 rounds of 5,000 arms take {} s", (SLOPES, "bkb, n=5000: time against T", "detail > s > 3", ".0f")),
        ("{} s for 2,000 rewards", (SLOPES, "RobustGP, fit: time against n", "detail > s > 3", ".0f")),
    ],
    "value_at_risk.md": [
        ("accuracy of {} in the worst", (TUNING, "held-out worst 10 %: value at risk", "value", ".3f")),
        ("tuning the mean has {},", (TUNING, "held-out worst 10 %: mean", "value", ".3f")),
        (
            "pays {} on average",
            (TUNING, "held-out worst 10 %: mean", "detail > mean > value at risk less this > 0", "size .3f"),
        ),
        (
            "regret {} times as large",
            (LOOPS, "branin and goldstein_price: faults, plain less clean, plain", "detail > end > 0", "fold .0f"),
        ),
        ("BoTorch's route on {} of 9 bumpy problems", (*BUMPY, "value", ".0f")),
        ("bumpy problems, significantly on {},", (*BUMPY, "detail > significantly", "d")),
        ("and on {} of 4 smooth ones", (*SMOOTH, "value", ".0f")),
        ("smooth ones, significantly on {}.", (*SMOOTH, "detail > significantly", "d")),
        ("It is {} decades ahead on the bumpy", (RIVALS, "all bumpy: MC-VaR", "value", "size .2f")),
        ("{} % of its runs stay", (RIVALS, "v-ucb: stuck on bumpy", "value", "percent .0f")),
    ],
    "unknown_hyperparameters.md": [
        ("has {} to", (WINS, "(d) mean, k(x, x) = 1, HE, w = 1: by likelihood over MLE", "value", ".2f")),
        (
            "to {} times the regret",
            (WINS, "the same line, 5 % spikes, over TGP-UCB: by likelihood over MLE", "value", ".2f"),
        ),
        ("and {} to", (WINS, "(d) mean, k(x, x) = 1, HE, theorem: by likelihood over MLE", "value", ".2f")),
        (
            "to {} times in the others",
            (WINS, "draws from U, design on 1/5 of the line: by likelihood over MLE", "value", ".2f"),
        ),
    ],
    "study.md": [
        ("none of {} acknowledged tells", ("study/kills.jsonl", "lost_tells", "detail > acknowledged", "d")),
    ],
}


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_of_results_is_what_the_files_give(template):
    committed = (TEMPLATES.parent / template.name).read_text(encoding="utf-8")
    assert committed == page(template), "run python -m docs.make_results"


@pytest.mark.parametrize(
    ("name", "said", "where"),
    [
        pytest.param(name, said, where, id=f"{name}: {said}")
        for name, figures in SAID.items()
        for said, where in figures
    ],
)
def test_what_a_page_says_stands_in_a_file(name, said, where):
    path = README if name == "README.md" else PAGES / name
    assert said.format(figure(*where)) in " ".join(path.read_text(encoding="utf-8").split())


def test_every_result_is_on_a_page():
    text = "".join(path.read_text(encoding="utf-8") for path in (TEMPLATES.parent).glob("*.md"))
    shown = set(re.findall(r"\]\(\.\./\.\./benchmarks/results/([^)]+)\)", text))
    raw = {
        "robustness/doors.jsonl",
        "value_at_risk/fault_loops.jsonl",
        "value_at_risk/faults.jsonl",
        "value_at_risk/fine_tuning.jsonl",
        "value_at_risk/rivals.jsonl",
    }  # summarised
    files = {
        path.relative_to(RESULTS).as_posix()
        for path in RESULTS.rglob("*")
        if path.suffix in (".png", ".json", ".jsonl")
    }
    assert {file for file in files - shown - raw if not file.startswith("mutants/")} == set()
    assert shown - files == set()


def test_a_figure_that_no_file_holds_is_refused():
    with pytest.raises(ValueError, match="0 rows named 'contaminated: nobody'"):
        figure(REPORT, "contaminated: nobody", "value")
    with pytest.raises(KeyError):
        figure(REPORT, "10% 10sd either: diff against SingleTaskGP", "no such entry")
    with pytest.raises(ValueError, match="has no row that ends in nobody against SingleTaskGP"):
        columns_table(REPORT, "diff against SingleTaskGP, nobody against SingleTaskGP")
