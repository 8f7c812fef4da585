"""The words of missions, and a sentence as a row of marks that the grammar reads.

Wordings are data (:data:`PHRASES`): adding one is adding it there. The longest phrase wins, articles are left out, and
numbers are digits or words up to 999. What no phrase begins with is refused with the nearest words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from temporeal.sim.stl.instructions.missions.meaning import LONGEST_S, MissionError
from temporeal.sim.stl.instructions.missions.meaning import words as spoken
from temporeal.sim.stl.instructions.missions.places import Places

MOST_CHARACTERS, MOST_WORDS = 1000, 200

PHRASES: dict[str, str] = {
    "VISIT": "visit | visits | visited | visiting | reach | reaching | reached | go to | going to | go into | go in | "
             "get to | fly to | fly into | flying to | move to | move into | drive to | drive into | walk to | walk "
             "into | travel to | head to | pass through | come to | be at | be in | be inside | being at | being in | "
             "enter | entering | entered | touch | touching | you visit | you visited | you have visited | you reach "
             "| you reached | you have reached | you enter | you entered | you are at | you are in | you were at | "
             "you were in | you have been at | you have been in | having visited | having been at | it visited | it "
             "is at | it was at | it has been at | patrol | first visit | first reach | first go to | first fly to | "
             "first be at | "
             "going into | going in | flying into | moving to | moving into | driving to | walking to | at",
    "RETURN": "return to | returning to | come back to | go back to | fly back to | get back to | back to | revisit",
    "STAY": "stay at | stay in | stay inside | stay on | wait at | wait in | remain at | remain in | hover at | hover "
            "over | hover in | linger at | rest at | keep inside | keep within | hold position at",
    "LAND": "land at | land on | land in | finish at | finish in | finish on | end at | end in | end on | end up at",
    "NEVER": "never | do not | don t | must not | should not | not | without | while not | but not | and not ever",
    "AVOID": "avoid | avoiding | keep out of | keeping out of | stay out of | staying out of | keep away from | "
             "keeping away from | stay away from | staying away from | keep clear of | keeping clear of | stay clear "
             "of | steer clear of | always avoid | always keep out of | always stay out of | always keep clear of",
    "OVER": "over | above | fly over | flying over | go over | going over | pass over | passing over | cross | "
            "crossing | cross over | be over | be above | fly above",
    "LEAVE": "leave | leaving | go out of | get out of | fly out of | exit",
    "UNTIL": "until | unless | before | till | until after",
    "THEN": "then | and then | after that | afterwards | next | then next | followed by | from there",
    "FINALLY": "finally | at the end | lastly | last of all | in the end",
    "LAST": "last | as last | at last",
    "OR": "or | or else",
    "FILLER": "either | both | please | should | must | shall | ever | robot | also | but | at any time",
    "ANY_ORDER": "in any order | in whatever order | in whichever order | in either order | in no particular order | "
                 "any order | order does not matter",
    "WITHIN": "within | in | in at most | in under | in less than | within at most | inside of | for at most | in up "
              "to",
    "BETWEEN": "between | from | sometime between",
    "TO": "to",
    "FOR": "for | for at least | and stay for | and stay there for | and wait for | and wait there for | and remain "
           "for | and remain there for | and hover for | and hover there for | and hold for | for first | for whole",
    "EVERY": "every | at least every | once every | at least once every | again every | at least once in every | "
             "repeatedly every | at intervals of",
    "WHENEVER": "whenever | each time | every time | any time | always when | always after | after every visit to | "
                "after each visit to | after any visit to | as often as",
    "WHOLE": "throughout | all time | whole time | at all times | whole mission | during whole mission | for whole "
             "mission | throughout whole mission | entire mission | for entire mission",
    "LASTS": "mission lasts | mission takes | mission is over after | it all lasts | it lasts | it takes",
    "IN_ALL": "in all | overall | altogether | in total | all in all | for all of it",
}
"""Mark: its wordings, without articles. A filler says nothing wherever it stands: "again" and "always" are none."""
ARTICLES = ("the", "an", "a")
UNITS = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "min": 60.0, "mins": 60.0, "minute": 60.0,
         "minutes": 60.0}
ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen").split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
NUMBERS = {**{word: float(k) for k, word in enumerate(ONES)}, **{word: 10.0 * (k + 2) for k, word in enumerate(TENS)},
           "hundred": 100.0, "half": 0.5}
STARTS = ("VISIT", "RETURN", "STAY", "LAND", "NEVER", "AVOID", "WHENEVER", "LASTS", "FINALLY")
"""Marks that begin a clause; before others a comma says nothing."""
SHOWN = 60
WORD = re.compile(r"\d+(?:\.\d+)?|[a-z]+|[,;.:!]")


@dataclass(frozen=True)
class Mark:
    """A part of a sentence. ``kind``: of :data:`PHRASES`, or PLACE, DURATION (``value`` in s), BREAK, JOIN. ``start``
    and ``end``: where it stands in the text."""

    kind: str
    text: str
    start: int
    end: int
    value: float = 0.0


@lru_cache(maxsize=1)
def wordings() -> dict[tuple[str, ...], str]:
    """Every phrase as its words, and its mark."""
    found: dict[tuple[str, ...], str] = {}
    for kind, phrases in PHRASES.items():
        for phrase in phrases.split("|"):
            found.setdefault(tuple(word for word in phrase.split() if word not in ARTICLES), kind)
    return found


@lru_cache(maxsize=1)
def reserved() -> frozenset[str]:
    """Words that no place has in its name. One may be called a."""
    words = {word for phrase in wordings() for word in phrase}
    return frozenset({*words, *UNITS, *NUMBERS, *ARTICLES, "and", "minute"} - {"a"})


def marks(text: str, where: Places) -> list[Mark]:
    """The marks of a sentence; a :class:`MissionError`: empty, too long, unknown words, a number without a unit."""
    found = list(_phrases(_words(text), where, text))
    return list(_breaks(list(_in_all(_durations(found, text)))))


def _words(text: str) -> list[Mark]:
    """Words, numbers and signs."""
    if not isinstance(text, str) or not text.strip():
        raise MissionError("the mission is empty: type a sentence, as 'visit red within 10 s'")
    if len(text) > MOST_CHARACTERS:
        raise MissionError(f"the mission has {len(text)} characters; at most {MOST_CHARACTERS} are read")
    lowered = "".join(c.lower() if c.isascii() else c for c in text)
    out, at = list[Mark](), 0
    for found in WORD.finditer(lowered):
        _check_between(lowered[at: found.start()], text[:at])
        out.append(Mark("", found[0], found.start(), found.end()))
        at = found.end()
    _check_between(lowered[at:], text[:at])
    if len(out) > MOST_WORDS:
        raise MissionError(f"the mission has {len(out)} words and signs; at most {MOST_WORDS} are read")
    return out


def _check_between(gap: str, before: str) -> None:
    """Between words there may be spaces, hyphens, underscores, quotes."""
    if strange := gap.strip(" \t\r\n-_'\""):
        raise MissionError(f"{strange[:10]!r} is no word and no sign of a mission{understood(before)}")


def understood(before: str) -> str:
    """What a message says was read."""
    before = before.strip(" ,;.")
    return f"; read so far: '{'...' if len(before) > SHOWN else ''}{before[-SHOWN:]}'" if before else ""


def _phrases(row: Sequence[Mark], where: Places, text: str) -> Iterator[Mark]:
    """Phrases, places, numbers, units and signs, the longest first."""
    names = {tuple(re.findall(r"\d+|[a-z]+", name)): name for name in where.shapes}
    phrases, at = wordings(), 0
    while at < len(row):
        word = row[at].text
        size, kind, value = _longest(row, at, names, phrases)
        if size:
            yield _joined(row[at: at + size], kind, value)
        elif word[0].isdigit() or word in NUMBERS:
            size, number = _number(row, at, text)
            yield _joined(row[at: at + size], "NUMBER", "", number)
        elif word in UNITS:
            size = 1
            yield _joined(row[at: at + 1], "UNIT", word, UNITS[word])
        elif word in ",;.:!" or word == "and":
            size = 1
            yield _joined(row[at: at + 1], "AND" if word == "and" else "SIGN", word)
        elif word in ARTICLES:
            size = 1
            if row[at + 1: at + 2] and row[at + 1].text in UNITS and row[at - 1].text not in NUMBERS:  # a minute
                yield _joined(row[at: at + 1], "NUMBER", word, 1.0)
        else:
            raise MissionError(_unknown(word, [*where.shapes]) + understood(text[: row[at].start]))
        at += size


def _longest(
    row: Sequence[Mark], at: int, names: dict[tuple[str, ...], str], phrases: dict[tuple[str, ...], str]
) -> tuple[int, str, str]:
    """Words of the longest place or phrase at ``at``, its mark and a place's name; articles inside are skipped."""
    best = (0, "", "")
    heard, size = list[str](), 0
    for mark in row[at: at + 10]:
        size += 1
        if mark.text in ARTICLES and heard and tuple(heard) + (mark.text,) not in names:
            continue
        heard.append(mark.text)
        if (name := names.get(tuple(heard))) is not None:
            best = size, "PLACE", name
        elif (kind := phrases.get(tuple(heard))) is not None:
            best = size, kind, ""
    return best


def _joined(row: Sequence[Mark], kind: str, text: str = "", value: float = 0.0) -> Mark:
    shown = text or " ".join(mark.text for mark in row)
    return Mark(kind, shown, row[0].start, row[-1].end, value)


def _number(row: Sequence[Mark], at: int, text: str) -> tuple[int, float]:
    """How many words a number has, and the number: 12.5, twenty five, two hundred, half."""
    word = row[at].text
    if word[0].isdigit():
        if len(word) > 12:
            raise MissionError(f"{word[:12]}... is too large a number{understood(text[: row[at].start])}")
        return 1, float(word)
    value, size, last = 0.0, 0, float("inf")
    for k, mark in enumerate(row[at: at + 5]):
        number = NUMBERS.get(mark.text)
        below = [NUMBERS.get(after.text, 100.0) < 100.0 for after in row[at + k + 1: at + k + 2]]
        if mark.text == "and" and last == 100.0 and below == [True]:  # a hundred and twenty
            size += 1
            continue
        if number == 100.0 and size and 0 < value < 10:
            value, last = value * 100.0, 100.0
        elif number is None or (size and (number >= 10 and last < 100 or number >= last or number < 1)):
            break
        elif size and last < 20:
            break
        else:
            value, last = value + number, number
        size += 1
    return size, value


def _durations(row: Sequence[Mark], text: str) -> Iterator[Mark]:
    """Numbers with their units as DURATION; in 'between 5 and 10 s' both have the unit."""
    at = 0
    while at < len(row):
        mark = row[at]
        kinds = [m.kind for m in row[at: at + 4]]
        if mark.kind != "NUMBER":
            if mark.kind == "UNIT":
                raise MissionError(f"{mark.text!r} has no number before it{understood(text[: mark.start])}")
            yield mark
            at += 1
        elif kinds[1:2] == ["UNIT"]:
            value, end, at = mark.value * row[at + 1].value, row[at + 1], at + 2
            more = [m.kind for m in row[at: at + 2]] == ["NUMBER", "UNIT"]
            if more and end.value > row[at + 1].value:  # 1 minute 30 seconds
                value, end, at = value + row[at].value * row[at + 1].value, row[at + 1], at + 2
            yield _duration(mark, end, value, text)
        elif kinds[1:] in (["AND", "NUMBER", "UNIT"], ["TO", "NUMBER", "UNIT"]):
            yield _duration(mark, mark, mark.value * row[at + 3].value, text)
            at += 1
        else:
            raise MissionError(f"{text[mark.start: mark.end]!r} of what? A time has a unit, as 10 s or two minutes"
                               f"{understood(text[: mark.start])}")


def _duration(first: Mark, last: Mark, value: float, text: str) -> Mark:
    if value > LONGEST_S:
        raise MissionError(f"{text[first.start: last.end][:SHOWN]!r} is too long: up to {LONGEST_S:g} s are legal"
                           f"{understood(text[: first.start])}")
    return Mark("DURATION", text[first.start: last.end], first.start, last.end, round(value, 9))


def _in_all(row: Iterator[Mark]) -> Iterator[Mark]:
    """'for 60 s in all', and 'for 60 s' at the beginning, are how long the mission lasts. Fillers are left out."""
    marks = [mark for mark in row if mark.kind != "FILLER"]
    for at, mark in enumerate(marks):
        if mark.kind == "IN_ALL":
            if at < 2 or marks[at - 1].kind != "DURATION":
                raise MissionError(f"{mark.text!r} comes after a time: 'for 60 s {mark.text}'")
            continue
        timed = mark.kind in ("FOR", "WITHIN") and [m.kind for m in marks[at + 1: at + 2]] == ["DURATION"]
        if timed and (not at or [m.kind for m in marks[at + 2: at + 3]] == ["IN_ALL"]):
            yield Mark("SIGN", ",", mark.start, mark.start)
            yield Mark("LASTS", mark.text, mark.start, mark.end)
        else:
            yield mark


def _breaks(row: Sequence[Mark]) -> Iterator[Mark]:
    """Commas and ands between places as JOIN, between clauses as BREAK, between times as TO; others are left out."""
    before: Mark | None = None
    pause: Mark | None = None
    for mark in row:
        if mark.kind in ("SIGN", "AND"):
            pause = mark if pause is None or mark.kind == "AND" else pause
            continue
        if before is None:
            pass
        elif mark.kind in STARTS and _begins(before, mark, pause):
            yield Mark("BREAK", pause.text if pause else "", before.end, mark.start)
        elif before.kind == "LASTS_TIME":
            yield Mark("BREAK", "", before.end, mark.start)
        elif pause and mark.kind == "PLACE":
            yield Mark("JOIN", pause.text, pause.start, pause.end)
        elif pause and mark.kind == before.kind == "DURATION":
            yield Mark("TO", pause.text, pause.start, pause.end)
        lasting = mark.kind == "DURATION" and before is not None and before.kind == "LASTS"
        before, pause = (Mark("LASTS_TIME", mark.text, mark.start, mark.end) if lasting else mark), None
        yield mark


def _begins(before: Mark, mark: Mark, pause: Mark | None) -> bool:
    """Whether a clause begins at ``mark``, one of :data:`STARTS`."""
    if before.kind in ("THEN", "FINALLY", "OR", "UNTIL", "WHENEVER", "NEVER"):
        return False
    return pause is not None or before.kind in ("PLACE", "DURATION", "WHOLE", "LAST", "ANY_ORDER", "LASTS_TIME")


def _unknown(word: str, names: Sequence[str]) -> str:
    """What a message says of a word that begins nothing."""
    said = [part for name in names for part in name.split("_")]
    known = [*(part for phrase in wordings() for part in phrase), *UNITS, *NUMBERS]
    inside = sorted((phrase for phrase in wordings() if word in phrase), key=lambda phrase: phrase[0] != word)
    if inside:
        return f"{word!r} is read only in: {', '.join(' '.join(phrase) for phrase in inside[:6])}"
    near = [close for row in (said, known) for close in get_close_matches(word[:SHOWN], dict.fromkeys(row), 3, 0.6)]
    shown = f"did you mean {', '.join(near[:3])}?" if near else f"places are {', '.join(map(spoken, names))}"
    return f"unknown word {word[:SHOWN]!r} ({shown})"
