"""The words of each named set are settings that there are."""

from pathlib import Path

import pytest
from tests.examples import thinned

from temporeal.policies.runs.demonstrating.demonstrations import request_of
from temporeal_benchmarks.data.sets import SETS, words_of


@pytest.mark.parametrize("name", thinned(list(SETS), keep=["lift-mixed", "lift-pictures", "door-open-medium"]))
def test_each_set_is_a_request(name):
    request = request_of(words_of(name, Path("sets"), 3))
    assert request.settings["seed"] == 3 and request.out == Path("sets") / f"{name}-3"


def test_an_unknown_set_names_the_known_ones():
    with pytest.raises(ValueError, match="no set 'lift'; legal: reach-medium"):
        words_of("lift", Path("sets"))
