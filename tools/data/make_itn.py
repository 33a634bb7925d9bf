"""Build the English grammar for inverse text normalisation, with pynini.

    python -m tools.data.make_itn                  # wfstdec/readable/data/en.itn.fst.gz

House style, where writers differ:

- cardinals from 10 on, with separators from 10,000 on: 1200, 12,500; round millions and
  more as "5 million"; one to nine stay words unless they belong to a larger form
- ordinals from 10th on; dates in the order spoken: January 5, 2024 and 5 January 2024
- times 3:30, 3:30 p.m., 3 p.m.; money $342, $5.20, $2.5 million, but 20 cents
- metric units are abbreviated behind a number: 5 km; miles and feet stay words
- digit strings of four and more without separators; letters without periods: BBC

Every `cross` has its output at its end: words with equal beginnings share states, and
few states are active in a search.
"""

import gzip
import itertools
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pynini
from pynini import accep, closure, union

from wfstdec.fst.openfst import FstContent, format_fst, parse_fst
from wfstdec.text.files import atomic_write

OUTPUT = Path(__file__).parents[2] / "wfstdec/readable/data/en.itn.fst.gz"
MARKS = 255
"""Output labels above it mark a class."""
ENDINGS = {"1": "st", "2": "nd", "3": "rd"}
ONES = "one two three four five six seven eight nine".split()
TEENS = """ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen""".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
SPOKEN = ["zero", *ONES, *TEENS]
SPOKEN += [f"{ten}{one}" for ten in TENS for one in ["", *(f" {o}" for o in ONES)]]
IRREGULAR = "one first,two second,three third,five fifth,eight eighth,nine ninth"
IRREGULAR = dict(pair.split() for pair in f"{IRREGULAR},twelve twelfth".split(","))
MONTHS = """january february march april may june july august september october november
december""".split()
CURRENCIES = {
    "$": ("dollar dollars", "cent cents"),
    "€": ("euro euros", "cent cents"),
    "£": ("pound pounds", "penny pence p"),
    "¥": ("yen", ""),
}
UNITS = """km kilometer kilometre, m meter metre, cm centimeter centimetre,
mm millimeter millimetre, kg kilogram kilo, g gram, mg milligram, l liter litre,
ml milliliter millilitre, km/h kilometer_per_hour kilometre_per_hour,
mph mile_per_hour, m/s meter_per_second metre_per_second, m² square_meter square_metre,
km² square_kilometer square_kilometre, °C degree_celsius, °F degree_fahrenheit,
Hz hertz, kHz kilohertz, MHz megahertz, GHz gigahertz, KB kilobyte, MB megabyte,
GB gigabyte, TB terabyte, W watt, kW kilowatt, kWh kilowatt_hour, V volt"""
COPIED = "at one point,that one point,second to none,one on one,one to one"
# Runs of letters that begin with "a" or end in "a" or "i": any other such letter is
# taken for the word.
BEGIN_IN_A = "aaa abc aclu acl aka amd aol apa api apr ata atm att awol"
END_IN_A_OR_I = "api bmi cgi cia dna epa fbi fda fifa gpa gui mba mri nafta nasa nba"
END_IN_A_OR_I += " nra nsa pta rna roi tsa uefa ufa usa usda vga wba wnba ymca ywca"
TOP_LEVEL = "com org net edu gov io ai de fr uk eu info tv"
NOT_IN_ADDRESSES = """a about again all am an and any are arrive arrived as at available
be been begin but buy by call came come dot each every find for found get go got had has
have he her here him his home i in is it its join just left listen live look looked
looking looks me meet met my near no not now of on one online open order our out page
read right same see shop site sold stay stayed staying store that the them then there
they this those to today us visit was we website were with work worked working works you
your""".split()

DIGITS = [*zip(SPOKEN, "0123456789", strict=False), ("oh", "0"), ("o", "0")]


def cross(spoken: str, written: str) -> pynini.Fst:
    """Words to text, with the output behind the last byte."""
    return pynini.cross(pynini.escape(spoken), "") + insert(written)


def insert(written: str) -> pynini.Fst:
    return pynini.cross("", pynini.escape(written))


def table(pairs) -> pynini.Fst:
    return union(*(cross(spoken, written) for spoken, written in pairs)).optimize()


def spoken(*words: str) -> pynini.Fst:
    """Words without output."""
    return table((word, "") for word in words)


def either(*fsts: pynini.Fst) -> pynini.Fst:
    return union(*fsts).optimize()


def cost(fst: pynini.Fst, weight: float) -> pynini.Fst:
    return fst + accep("", weight=weight)


def ordinal(name: str) -> str:
    head, last = name[: name.rfind(" ") + 1], name.split()[-1]
    last = last[:-1] + "ie" if last[-1] == "y" else last
    return head + IRREGULAR.get(last, last + "th")


def suffixed(digits: str) -> str:
    teen = digits[-2:-1] == "1"
    return digits + ("th" if teen else ENDINGS.get(digits[-1], "th"))


def numbers(low: int, high: int, width: int = 1, last: bool = False) -> pynini.Fst:
    """Names of `low` to `high` to digits; `last`: of ordinals, with their suffix."""
    pairs = [(SPOKEN[n], f"{n:0{width}}") for n in range(low, high + 1)]
    return table([(ordinal(name), suffixed(n)) for name, n in pairs] if last else pairs)


def large_numbers(last: bool = False) -> pynini.Fst:
    """Cardinals from 10 on, or ordinals (`last`: the last word is one)."""
    SPACE, AND = spoken(" "), spoken(" and ")

    def end(zeros: str, last: bool = last) -> pynini.Fst:
        return cross("th", zeros + "th") if last else insert(zeros)

    def behind_hundred(last: bool = last) -> pynini.Fst:
        return either((SPACE | AND) + numbers(1, 99, 2, last), end("00", last))

    def group(width: int, last: bool) -> pynini.Fst:
        hundreds = numbers(1, 9) + spoken(" hundred") + behind_hundred(last)
        return either(numbers(1, 99, width, last), hundreds)

    # Below 10,000, without a separator.
    digit = either(numbers(1, 9), accep("") if last else cross("a", "1"))
    tens = table((SPOKEN[n], str(n)) for n in range(11, 100) if n % 10)
    rest = either(SPACE + group(3, last), AND + numbers(1, 99, 3, last), end("000"))
    forms = [numbers(10, 99, 1, last), digit + spoken(" thousand") + rest]
    forms.append((digit | tens) + spoken(" hundred") + behind_hundred())
    # Larger ones: `rest` has the digits behind a separator, three, six, nine or twelve.
    first = digit + spoken(" hundred") + behind_hundred(False)
    first = either(numbers(10, 99), first)
    for name in ("thousand", "million", "billion", "trillion"):
        forms.append(cost(first + cross(f" {name}", ",") + rest, 0.01))
        if name != "thousand" and not last:
            forms.append(first + accep(f" {name}"))
        inner = SPACE + group(3, False) + cross(f" {name}", ",") + rest
        rest = either(inner, insert("000,") + rest)
        first = either(first, digit)
    return either(*forms)


def digit_strings() -> pynini.Fst:
    digit, space = table(DIGITS), spoken(" ")
    several = table(
        (f"{word} {name}", times * d)
        for times, word in ((2, "double"), (3, "triple"))
        for name, d in DIGITS
    )
    any_ = either(digit, several)
    more = space + any_
    with_repeated = either(
        several + closure(more, 2),
        any_ + space + several + closure(more, 1),
        any_ + more + space + several + closure(more),
    )
    return either(any_ + closure(more, 3), with_repeated)


def years(first: int = 10) -> tuple[pynini.Fst, pynini.Fst]:
    """Years in pairs of digits (nineteen eighty four) from `first`, and others."""
    space = spoken(" ")
    behind = either(space + numbers(10, 99), spoken(" oh ", " o ") + numbers(1, 9, 2))
    others = numbers(11, 19) + cross(" hundred", "00")
    rest = either((space | spoken(" and ")) + numbers(1, 99, 3), insert("000"))
    return numbers(first, 20) + behind, either(
        others, cross("two thousand", "2") + rest
    )


def dates() -> pynini.Fst:
    the = closure(spoken("the "), 0, 1)
    pairs, others = years()
    decades = [(f" {ordinal(t)[:-2]}s", f"{i}0s") for i, t in enumerate(TENS, start=2)]
    decades += [(" tens", "10s"), (" hundreds", "00s")]
    day, any_year = days(1), either(pairs, others)
    # "ten forty" is a time; "ten sixty six" is none.
    forms = [
        cost(years(13)[0], 0.2),
        cost(pairs, 0.4),
        numbers(11, 20) + table(decades),
    ]
    for month in MONTHS:
        # "may" and "march" are verbs too: "may first", "may five", "march ten".
        is_verb, title = month in ("may", "march"), cross(month, month.title())
        title_day = title + accep(" ") + either(the + day, numbers(1, 31))
        forms.append(title_day + insert(",") + accep(" ") + any_year)
        sure = [spoken("the ") + days(4 if is_verb else 1), pairs]
        sure += [days(4 if month == "may" else 1)]
        sure += [] if is_verb else [numbers(1, 31), others]
        forms.append(title + accep(" ") + either(*sure))
        of = table((word, " ") for word in ([" of "] if is_verb else [" of ", " "]))
        forms.append(the + day + of + title + closure(accep(" ") + any_year, 0, 1))
    return either(*forms)


def days(first: int) -> pynini.Fst:
    return table((ordinal(SPOKEN[n]), str(n)) for n in range(first, 32))


def times() -> pynini.Fst:
    hour = numbers(1, 12)
    minute = either(numbers(10, 59), spoken("oh ", "o ") + numbers(1, 9, 2))
    clock = hour + cross(" ", ":") + minute
    one = cross("one ", "1:") + table((SPOKEN[n], str(n)) for n in (15, 30, 45))
    bare = either(numbers(2, 12) + cross(" ", ":") + minute, one)
    full = hour + cross(" o'clock", ":00")
    names = {15: ["quarter", "a quarter"], 30: ["half"]}
    pairs = []
    for h, m in itertools.product(range(1, 13), range(1, 31)):
        past = [f"{SPOKEN[m]} minute{'s' * (m > 1)}", *names.get(m, [])]
        pairs += [(f"{p} past {SPOKEN[h]}", f"{h}:{m:02}") for p in past]
        if m % 5 == 0 and m != 30:
            pairs.append((f"{SPOKEN[m]} past {SPOKEN[h]}", f"{h}:{m:02}"))
        if m < 30:
            before = (h - 2) % 12 + 1
            pairs += [(f"{p} to {SPOKEN[h]}", f"{before}:{60 - m}") for p in past]
    related = table(pairs)
    half_day = [(f" {x}{gap}m", f" {x}.m.") for x in "ap" for gap in ["", " ", "."]]
    half_day += [(f" {x}.m.", f" {x}.m.") for x in "ap"]
    with_half = either(hour, clock, full, related) + table(half_day)
    return either(cost(bare, 0.35), full, related, with_half)


def money(amount: pynini.Fst, whole: pynini.Fst) -> pynini.Fst:
    cents = spoken(" ") + numbers(1, 99, 2)
    cents = either(cents, spoken(" and") + cents)
    forms = [whole + cross(" cents", " cents"), whole + cross(" pence", "p")]
    for symbol, (units, parts) in CURRENCIES.items():
        unit = spoken(*(f" {name}" for name in units.split()))
        forms.append(insert(symbol) + amount + unit)
        if parts:
            part = spoken(*(f" {name}" for name in parts.split()))
            forms.append(insert(symbol) + whole + unit + insert(".") + cents + part)
    return either(*forms)


def letters() -> pynini.Fst:
    letter, begin, safe = (
        table((a, a.upper()) for a in string.ascii_lowercase if a not in left_out)
        for left_out in ("", "a", "ai")
    )
    more, last = spoken(" ") + letter, spoken(" ") + safe
    words = f"{BEGIN_IN_A} {END_IN_A_OR_I}".split()
    listed = table((" ".join(word), word.upper()) for word in words)
    runs = either(safe + last, begin + closure(more, 1) + last, listed)
    abbreviations = table([("i e", "i.e."), ("e g", "e.g.")])
    return either(cost(runs, 0.01) + closure(accep("'s"), 0, 1), abbreviations)


def addresses() -> pynini.Fst:
    """E-mail addresses and names of hosts; their parts are words or letters."""
    lower, space = union(*string.ascii_lowercase).optimize(), spoken(" ")
    words = closure(lower, 1) - union(*NOT_IN_ADDRESSES)
    part = closure(lower, 2) | (lower + closure(space + lower, 1))
    part += closure(space + table(DIGITS))
    begin = words | (lower + closure(space + lower, 1))
    begin = (begin + closure(space + table(DIGITS))).optimize()
    joints = [(" dot ", "."), (" dash ", "-"), (" hyphen ", "-"), (" underscore ", "_")]
    more = closure(table(joints[:2]) + part)
    top = cross(" dot ", ".") + union(*TOP_LEVEL.split())
    local = begin + closure(table(joints) + part)
    path = closure(cross(" slash ", "/") + closure(lower, 2))
    mail = local + cross(" at ", "@") + part + more + top
    return either(mail, begin + more + top + path)


def plurals(name: str) -> list[str]:
    """A unit, with an s behind its first word, and behind its last."""
    head, _, rest = name.replace("_", " ").partition(" ")
    return [f"{head} {rest}".strip(), f"{head}s {rest}".strip(), f"{head} {rest}s"]


def rules() -> list[tuple[str, pynini.Fst]]:
    """The grammar of each class."""
    high, low = large_numbers(), numbers(1, 9)
    whole = either(low, high)
    point = cross(" point", ".") + spoken(" ")
    digit = table(DIGITS)
    places = either(digit + closure(spoken(" ") + digit), numbers(10, 99))
    magnitude = union(" million", " billion", " trillion")
    decimal = either(numbers(0, 0), whole) + point + places
    decimal = either(decimal, decimal + magnitude)
    minus = table([("minus ", "-"), ("negative ", "-")])
    number = either(numbers(0, 0), whole, decimal)
    amount = either(number, minus + number)
    units = [entry.split() for entry in UNITS.split(",")]
    unit_names = [(name, unit) for unit, *names in units for name in names]
    measured = [(f" {plural}", f" {u}") for n, u in unit_names for plural in plurals(n)]
    halves = [("a half", "1/2"), ("a quarter", "1/4"), ("three quarters", "3/4")]
    halves += [("one half", "1/2"), ("one third", "1/3"), ("two thirds", "2/3")]
    fractions = whole + cross(" and ", " ") + table(halves)
    tenths = [ordinal(name) for name in (*TEENS, *TENS)]
    copied = [f"{n} {t}" for n in ("a", *ONES) for t in tenths] + COPIED.split(",")
    return [
        # A cost for each, so that one range of another class wins over two of these.
        ("NUM", cost(either(high, decimal, minus + number), 0.3)),
        ("NUM:all", cost(numbers(0, 9), 0.3)),
        ("ORD", cost(large_numbers(last=True), 0.3)),
        ("DIGITS", digit_strings()),
        ("DATE", dates()),
        ("TIME", times()),
        ("MONEY", money(amount, whole)),
        ("PERCENT", amount + table([(" percent", "%"), (" per cent", "%")])),
        ("UNIT", amount + table(measured)),
        ("FRACTION", fractions),
        ("LETTERS", letters()),
        ("WEB", addresses()),
        ("COPY", table((phrase, phrase) for phrase in copied)),
    ]


def grammar() -> FstContent:
    """The union of all classes; marks are control bytes until they get their labels."""
    named = rules()
    marked = [fst + insert(chr(mark)) for mark, (_, fst) in enumerate(named, start=1)]
    fst = union(*marked).optimize().arcsort("ilabel")
    arrays = parse_fst(fst.write_to_string(), "the grammar").fst
    is_mark = (arrays.olabel > 0) & (arrays.olabel <= len(named))
    olabel = np.where(is_mark, arrays.olabel + MARKS, arrays.olabel).astype(np.int32)
    names = {MARKS + mark: name for mark, (name, _) in enumerate(named, start=1)}
    return FstContent(replace(arrays, olabel=olabel), osymbols=names)


def main() -> None:
    content = grammar()
    with atomic_write(OUTPUT) as file:
        file.write(gzip.compress(format_fst(content), 9, mtime=0))
    print(f"{content.fst.num_states} states, {content.fst.num_arcs} arcs")


if __name__ == "__main__":
    main()
