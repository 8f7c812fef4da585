"""rtamt's notation: what each text of rtamt_texts.json means, as rtamt 0.4.10 was seen to read it."""

import json
from pathlib import Path

import pytest

from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import to_text
from temporeal.sim.stl.language.serialization import from_json, to_json

TEXTS = json.loads((Path(__file__).parents[1] / "rtamt_texts.json").read_text())
SCHEMA = {name: SignalSpec(name, (), "") for name in TEXTS["signals"]}


def meant(entry):
    return parse(entry["means"], SCHEMA)


@pytest.mark.parametrize("entry", TEXTS["agree"], ids=lambda e: e["text"])
def test_a_text_without_redundant_parentheses_reads_as_in_rtamt(entry):
    found = parse(entry["text"], SCHEMA)
    assert found == meant(entry)
    assert parse(to_text(found), SCHEMA) == found and from_json(to_json(found)) == found


@pytest.mark.parametrize("entry", TEXTS["declaring"] + TEXTS["semicolons"], ids=lambda e: e["text"])
def test_declarations_and_named_assertions(entry):
    declares = "float " in entry["text"]
    assert parse(entry["text"], None if declares else SCHEMA) == meant(entry)


@pytest.mark.parametrize("entry", TEXTS["differ"], ids=lambda e: e["text"])
def test_what_is_read_otherwise_is_read(entry):
    assert parse(entry["text"], SCHEMA) == meant(entry)


@pytest.mark.parametrize("entry", TEXTS["refused"], ids=lambda e: e["text"])
def test_what_is_no_formula_here_is_told_where(entry):
    with pytest.raises(FormulaError) as caught:
        parse(entry["text"], SCHEMA)
    assert entry["text"][caught.value.start : caught.value.end] == entry["at"]
