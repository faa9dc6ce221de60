"""Cells of a laboratory's table: numbers as several countries write them, units, dates, and words for no reading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

PENDING = ("", "-", "–", "—", "n/a", "na", "#n/a", "#na", "nan", "pending", "tbd")
FAILED = "failed"
SPACES = str.maketrans(dict.fromkeys("\u00a0\u2007\u2009\u202f\n\r", " ") | {"\u2212": "-"})
SIGNS = str.maketrans({"\u3000": " ", "℃": "°C", "℉": "°F", "µ": "μ"})
WIDE = SPACES | SIGNS | {0xFF00 + i: 0x20 + i for i in range(1, 0x5F)}  # as East Asian keyboards write them
RAISED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
POWER = re.compile(
    r"(?:(?P<factor>\d)\s*[·×xX*⋅]\s*|(?<![\d.,]))10"
    r"(?:\s*(?:\^|\*\*)\s*\(?(?P<plain>[+-]?\d+)\)?|(?P<raised>[⁺⁻⁰-⁹¹²³]+))"
    r"|(?P<first>\d)\s*[·×xX*⋅]\s*10(?P<signed>[+-]\d+)"
)
ABOUT = re.compile(r"(?:[~≈∼]|(?:ca|approx)\.?(?![^\W\d_])|circa\b|about\b|etwa\b)\s*", re.IGNORECASE)
PARTS = re.compile(
    r"(?P<currency>[$€£¥]?)\s*(?P<sign>[+-]?)\s*(?P<body>\d[\d.,]*(?:[ '’]\d{3}(?!\d)[.,\d]*)*|[.,]\d+)"
    r"(?P<exponent>[eE][+-]?0*\d{1,2}(?!\d))?\s*(?P<unit>(?:[^\W\d_]|[%‰°º€$£¥(\[/])[^±<>]*)?"
)
GROUPED = re.compile(r"\d{1,3}(?:[ '’]\d{3})+(?!\d)")
DATE = re.compile(
    r"((?:19|20)\d\d([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([./-])\d{1,2}\3(\d{4}|\d{2})"
    r"|\d{1,2}[-. ]+[^\W\d_]{3,9}[-. ]+\d{2,4}"
    r"|(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01]))([T ].*)?|\d{1,2}:\d{2}(:\d{2})?( ?[ap]m)?",
    re.IGNORECASE,
)


class TableError(ValueError):
    """A table that cannot be used; the message names file, row and column."""


@dataclass(frozen=True)
class Written:
    """A number as it is written.

    Attributes:
        digits: Digits and marks between sign and exponent, without spaces.
        decimal: The decimal mark that these digits prove, "." or ","; "" where they have no mark, and "?" where their
            mark, with three digits behind it, may be either.
    """

    sign: str
    digits: str
    exponent: str
    unit: str
    decimal: str

    def value(self, decimal: str) -> float:
        """The number, where this is the decimal mark."""
        digits = self.digits.replace(other(decimal), "").replace(decimal, ".")
        return float(f"{self.sign}{digits}{self.exponent}")

    @property
    def has_groups(self) -> bool:
        """Whether its thousands are separated beyond doubt by a point or comma."""
        return self.decimal in (".", ",") and other(self.decimal) in self.digits


def other(decimal: str) -> str:
    return "," if decimal == "." else "."


@lru_cache(maxsize=65536)  # cells are looked at by many rules
def written(cell: str) -> Written | None:
    """The number in a cell, with its unit; None where it is no number."""
    text = POWER.sub(_exponent, cell.translate(WIDE).strip())
    match = PARTS.fullmatch(text, about.end() if (about := ABOUT.match(text)) else 0)
    if match is None:
        return None
    digits, spaced = match["body"], GROUPED.match(match["body"])
    digits = re.sub("[ '’]", "", digits) if spaced else digits
    if not re.fullmatch(r"[\d.,]+", digits) or (decimal := _decimal(digits, spaced is not None)) is None:
        return None
    unit = match["currency"] + (match["unit"] or "").strip()
    if re.fullmatch(r"[Oo]\d*|[eE][+-]?\d+", unit):  # a letter for a zero, or beyond the range of numbers
        return None
    return Written(match["sign"], digits, match["exponent"] or "", unit.strip("[]() ") or unit, decimal)


def _exponent(power: re.Match[str]) -> str:
    exponent = power["plain"] or power["signed"] or power["raised"].translate(RAISED)
    return f"{power['factor'] or power['first'] or 1}e{exponent}"


def _decimal(digits: str, spaced: bool) -> str | None:
    if digits.isdigit():
        return ""
    for mark, group in ((".", ","), (",", ".")):
        m, g = re.escape(mark), re.escape(group)
        if re.fullmatch(rf"\d*{m}\d+|\d+{m}", digits):
            return "?" if not spaced and re.fullmatch(rf"[1-9]\d{{0,2}}{m}\d{{3}}", digits) else mark
        if re.fullmatch(rf"\d{{1,3}}({g}\d{{3}})+{m}\d+|\d{{1,3}}({g}\d{{3}}){{2,}}", digits):
            return mark
    return None


def is_date(cell: str) -> bool:
    return DATE.fullmatch(cell.translate(WIDE).strip()) is not None


@lru_cache(maxsize=1 << 16)
def is_pending(cell: str) -> bool:
    return cell.translate(WIDE).lower() in PENDING


def advice(cell: str) -> str:
    """What to write in place of a reading that is no number."""
    plain = cell.translate(WIDE).strip()
    if re.match(r"[<>≤≥]", plain):
        return "is a limit; write the limit as a number, or leave the cell blank, as if the reading were pending"
    if "±" in plain or "+/-" in plain or "+-" in plain:
        return "has an error behind it; write the number alone, as the noise is learned from all readings"
    if re.fullmatch(r"n\.? ?d\.?|b\.?d\.?l\.?|l\.?o\.?d\.?", plain, re.IGNORECASE):
        return "may mean that nothing was found (write the limit as a number) or measured (leave the cell blank)"
    if any(c.isdigit() for c in plain):
        return "is no number; correct it"
    return f"is no number; leave the cell blank while it is pending, or write {FAILED} if the experiment gave none"


def word(text: str) -> str:
    """Names as a shell takes them for one word."""
    return text if re.fullmatch(r"[\w.,:=%+-]+", text) else f'"{text}"'


def quantity(text: str, option: str = "") -> float:
    """The number in an argument, with a point or comma; raises ``TableError``."""
    if (number := written(text)) is None:
        raise TableError(f"{option}{': ' if option else ''}{text!r} is no number.")
    if number.decimal == "?" and "," in number.digits:
        raise TableError(f"{text!r} may be {number.value(','):g} or {number.value('.'):g}; write it without the comma.")
    return number.value("," if number.decimal == "," else ".")
