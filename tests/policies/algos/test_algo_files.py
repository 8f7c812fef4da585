"""An algorithm's file in configs/algo names every setting, each with the default that the code has."""

from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

from temporeal.policies.algos.apg import APGConfig
from temporeal.policies.algos.npc import NPCConfig
from temporeal.policies.algos.reflex import ReflexConfig
from temporeal.policies.algos.tgpo import TGPOConfig
from temporeal.policies.any_formula.generalist import GeneralistConfig
from temporeal.policies.planners.cem import CEMConfig
from temporeal.policies.planners.milp import MILPConfig
from temporeal.policies.training.ppo_state import PPOConfig
from temporeal.policies.training.registries import FROM_DATA
from temporeal.robots.registry import names, resolve

FOLDER = Path(__file__).parents[3] / "configs" / "algo"
TUNERS = ("dppo", "dsrl", "flow_grpo", "flow_noise", "flow_sde", "residual", "rl100", "rl100_offline",
          "sac", "sequence_sac", "specialists", "td3", "token_ppo")
CONFIGS = {"apg": APGConfig, "cem": CEMConfig, "milp": MILPConfig, "npc": NPCConfig, "ppo": PPOConfig,
           "reflex": ReflexConfig, "tgpo": TGPOConfig, "generalist": GeneralistConfig,
           **{name: get_type_hints(resolve("temporeal.policies.algos", name).train)["config"] for name in TUNERS},
           **{name: get_type_hints(resolve(package, name).train)["config"]
              for package in FROM_DATA for name in names(package)}}


def written(name: str) -> dict:
    data = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    bases = [base for base in data.pop("defaults", []) if base != "_self_"]
    return {**{k: v for base in bases for k, v in written(base).items()}, **data}


@pytest.mark.parametrize("name", CONFIGS)
def test_configuration_file_has_the_defaults(name: str) -> None:
    kind, found = CONFIGS[name], written(name)
    found.pop("num_worlds", None)  # what a run has, where it does not say
    assert set(found) == {f.name for f in fields(kind)}
    assert kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}) == kind()


PRESETS = {path.stem: found for path in FOLDER.glob("*.yaml") if "name" in (found := yaml.safe_load(path.read_text()))}
"""Files that set some of another algorithm's settings."""


def test_every_algorithm_with_a_file_is_here() -> None:
    assert set(CONFIGS) == {path.stem for path in FOLDER.glob("*.yaml")} - set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_sets_what_its_algorithm_has(name: str) -> None:
    kind, own = CONFIGS[PRESETS[name]["name"]], set(PRESETS[name]) - {"defaults", "name"}
    assert own <= {f.name for f in fields(kind)}
