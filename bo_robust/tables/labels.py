"""Columns whose names or texts say what they are: batches, what was measured, names of rows, levels of a screen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from bo_robust.tables.cells import word, written
from bo_robust.tables.questions import Question
from bo_robust.tables.table import Table

NAMES = re.compile(
    r"(.*[^a-z])?(well|plate|rack|run|batch|lot|charge|block|series|round|iteration|campaign|session|shift|day|date"
    r"|datum|week(day)?|woche|month|jour|chemist|operator|analyst|scientist|technician|experimenter|bediener|laborant"
    r"|initials|instrument|device|machine|gerät|hplc|eln|notebook|exp(eriment)?|versuch|sample|probe"
    r"|vial|rep(licate)?|lab|site"
    r"|set|group|trial|wave)[\s_.#-]*(id|no|nr|num(ber)?|name|code|\d)?\W*",
    re.IGNORECASE,
)
TEXTS = re.compile(
    r"(mon|tues?|wed(nes)?|thu(r|rs)?|fri|sat(ur)?|sun)(day)?\.?"
    r"|(u?hplc|uplc|gc|lc-?ms|gc-?ms)[-_ ]?\w{1,2}|eln[-_ ]?\d.*",
    re.IGNORECASE,
)
LOOSE = re.compile(r"\b(group|set|series|site)s?\b", re.IGNORECASE)  # names of batches, and of parts of molecules
WELL = re.compile(r"[A-P](0?[1-9]|1\d|2[0-4])")
OUTCOMES = re.compile(r"analytes?|variable|property|metric|measure(ment|d)?|assay|outcome|response", re.IGNORECASE)
ROWS = "run|row|exp|expt|experiment|sample|entry|reaction|rxn|trial|versuch|lauf|probe|essai"
IDENTIFIER = re.compile(rf"(new|old|well|{ROWS})?[ _.-]?(id|idx|index|nr|no|num|#)\.?|{ROWS}", re.IGNORECASE)
ROLE = re.compile(
    r"\b(solvents?|base|ligand|catalyst|cat|acid|additive|reagent|substrate|salt|metal|support|polymer|monomer|buffer"
    r"|enzyme|oxidant|reductant|surfactant|electrolyte|initiator|precursor|nucleophile|electrophile|amine|alcohol"
    r"|cation|halide|anion|dopant|binder|filler|resin|strain|medium|material|lösungsmittel|säure"
    r"|katalysator|solvant|acide)\b"
    r"|溶[媒剂]|[触催][媒化]|[酸碱]|塩基|配[位体]",
    re.IGNORECASE,
)
# What is known after an experiment alone, in whole words; as properties of a material, some are chosen.
RESULTS = re.compile(
    r"(?<![^\W\d_])(conv(ersion)?s?|umsatz|selectivity|sel(?=\W*%)|selektivität|sélectivité|yields?|ausbeute"
    r"|rendement|productivity|produktivität|productivité|space[- _]?time[- _]?yield|(?-i:TON|TOF|STY)|recovery|theor"
    r"|theoretical|theoretisch|théorique|tit(er|re)|area[ _]?%|peak[ _]area|(hp|u?p)?lc[ _]area"
    r"|auswaage|obtenue?|obtained|erhalten|(isolated|crude|product)[ _](mass|weight|amount|m?g)"
    r"|(mass|weight|amount)[ _](isolated|product|crude)|(sm|starting material|substrate|edukt)[ _](left|remaining|rest)"
    r"|(residual|unreacted|rest)[ _]?(sm|edukt|starting material|substrate))(?![^\W\d_])",
    re.IGNORECASE,
)
PROPERTIES = re.compile(
    r"(?<![^\W\d_])(purity|purities|reinheit|pureté|assay|viscosity|viskosität|viscosité|(?-i:ee|er|dr|e\.[er]\."
    r"|d\.r\.)|(?-i:OD)[ _]?\d{3}|optical density|optische dichte)(?![^\W\d_])|^(?-i:OD)$",
    re.IGNORECASE,
)
CHOSEN = re.compile(
    r"(?<![^\W\d_])((?<!space[- _])time|zeit|temp(erature?)?|temperatur|vol(ume)?|cycles?|step|initial|start|feed|inlet"
    r"|induction|ind|inoc(ulum)?|seed|target|set|setpoint|nominal|grade|modifier|factor|threshold)(?![^\W\d_])",
    re.IGNORECASE,
)
AROUND = re.compile(
    r"(room|ambient|lab|indoor|outdoor|raum|labor|umgebungs?)[ _.-]*(t|temp\w*|rh|(luft)?feuchte|humidity|pressure)\b.*"
    r"|temp\w*[ _.](ambiante|de la pièce)"
    r"|(rel(ative|\.)?[ _])?(air )?(humidity|luftfeuchte|luftfeuchtigkeit|humidité)\W*",
    re.IGNORECASE,
)
OF_ROWS = re.compile(r"\b(id|label|sample|code|who|by|operator|entry|ref|eln|comment|remark|note|recipe)s?\b", re.I)


def is_result(name: str) -> bool:
    """Whether a name is that of an outcome, wherever its column stands."""
    of_material = ROLE.search(name.replace("_", " "))
    return not CHOSEN.search(name) and bool(RESULTS.search(name) or (not of_material and PROPERTIES.search(name)))


def ask_about_results(table: Table, names: Sequence[str]) -> dict[str, Question]:
    """A question about all columns of numbers whose names are those of outcomes, and one about the room."""
    found: dict[str, Question] = {}
    numeric = [name for name in names if any(table.numbers(name))]
    results = [name for name in numeric if is_result(name)]
    around = [name for name in numeric if name not in results and AROUND.fullmatch(name)]
    for some, what, *options in (
        (results, "an outcome, not a parameter", ("--ignore", "left out")),
        (around, "observed, not set", ("--observe", "what a day brings"), ("--condition", "can be set for a test")),
    ):
        words, every = " ".join(map(word, some)), (*options, ("--continuous", "set beforehand"))
        answers = tuple(f"{option} {words} ({meaning})" for option, meaning in every)
        found |= dict.fromkeys(some, Question(f"{', '.join(map(repr, some))} may be {what}", answers))
    return found


def ask_about_labels(table: Table, names: Sequence[str], measured: bool) -> dict[str, Question]:
    """Questions about columns that look like a batch of readings, make a row of each, or may be ``measured``, too."""
    found = ask_about_results(table, names) if measured else {}
    for name in names:
        cells, this = [cell for cell in table.cells(name) if cell], word(name)
        numbers = [number for number in map(written, cells) if number is not None]
        whole = all(number.digits.isdigit() and not number.unit for number in numbers)
        plate = all(map(WELL.fullmatch, cells)) and len({cell[0] for cell in cells}) > 1
        loose = LOOSE.search(name) and len({re.sub(r"(\d+|[A-E]|[IVX]+)$", "", cell) for cell in cells}) > 1
        if OUTCOMES.fullmatch(name) and not numbers:
            text = f"{name!r} may say what was measured; correct the table, as a row must be one experiment"
            found[name] = Question(text, (f"--categorical {this} (it is varied)",))
        elif plate or (whole and NAMES.fullmatch(name) and not loose) or all(map(TEXTS.fullmatch, cells)):
            shared, apart = f"--batch {this} (readings of one share an offset)", f"--ignore {this} (no influence)"
            varied = f"--condition {this} (varies in use, can be set for a test)"
            answers = shared, apart, varied, f"--categorical {this} (to be chosen)"
            found[name] = Question(f"{name!r} looks like a batch", answers)
    return found


def recipes(table: Table, names: Sequence[str], named: set[str], questions: list[Question]) -> dict[str, str]:
    """Columns of texts each of which goes with a design of its own, beside replicates: they name the designs."""
    numeric = [name for name in names if all(map(written, filter(None, table.cells(name))))]
    for name in (name for name in names if numeric and name not in {*numeric, *named}):
        cells = table.cells(name)
        designs = list(zip(*(table.cells(other) for other in names if other != name), strict=True))
        if 3 < len({*cells}) == len({*designs}) == len({*zip(cells, designs, strict=True)}) < len(cells):
            if len({re.sub(r"\d+\w?$", "", cell) for cell in cells}) == 1:
                return {name: "names the designs"}
            answers = f"--ignore {word(name)} (the others vary)", f"--categorical {word(name)} (it varies, too)"
            questions.append(Question(f"{name!r} has a design of the other columns for each text", answers))
    return {}


def is_screen(name: str, cells: Sequence[str]) -> bool | Question:
    """Whether texts that most rows have for themselves are levels of a screen, and no names or remarks of rows."""
    words = name.replace("_", " ")
    forms = Counter(re.sub(r"\d+", "0", cell) for cell in cells)
    numbered = any("0" in form and 2 * count > len(cells) for form, count in forms.items())  # as cat-1, cat-2
    sentences = any(len(cell.split()) > 3 for cell in cells)
    role = ROLE.search(words) is not None
    if OF_ROWS.search(words) or (not role and (numbered or sentences or "name" in words.casefold())):
        return False
    if role and not numbered:
        return True
    what = f"{name!r} has a text of its own in most rows, such as {cells[0]!r}: a factor of a screen, or names of rows"
    return Question(what, (f"--categorical {word(name)} (a factor)", f"--ignore {word(name)} (names)"))
