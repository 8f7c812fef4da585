"""Pictures are rendered at each step, or where they are asked for; an episode is its numbers, whoever plays it."""

from types import SimpleNamespace
from typing import Any

import torch

from temporeal.sim.env import Env, make_env
from temporeal.sim.task import load_task


def watched() -> tuple[Env, list[Any]]:
    """An environment, and the worlds of every rendering."""
    env, asked = make_env(load_task("hover"), num_worlds=3, seed=1, compiled=False), []

    def take(ids: torch.Tensor | None, **_: Any) -> dict[str, torch.Tensor]:
        asked.append(None if ids is None else ids.tolist())
        return {"front_rgb": torch.zeros(3 if ids is None else len(ids), 2, 2, 3, dtype=torch.uint8)}

    env.pictures, env.rendering = SimpleNamespace(take=take), True  # type: ignore[assignment]
    return env, asked


def test_pictures_are_rendered_at_each_step_or_where_they_are_asked_for() -> None:
    env, asked = watched()
    env.reset()
    assert env.step(torch.zeros(3, env.action_dim)).obs.images["front_rgb"].shape == (3, 2, 2, 3)
    assert asked == [None, None]
    env.rendering = False
    assert not env.reset().images and not env.step(torch.zeros(3, env.action_dim)).obs.images
    assert asked == [None, None]
    assert env.render(torch.tensor([2]))["front_rgb"].shape == (1, 2, 2, 3) and asked[-1] == [2]


def test_without_cameras_there_are_no_pictures() -> None:
    env = make_env(load_task("hover"), num_worlds=2, seed=1, compiled=False)
    assert not env.rendering and env.render() == {}


def test_an_episode_is_recorded_before_anybody_plays_it() -> None:
    env = make_env(load_task("hover"), num_worlds=2, seed=1, compiled=False)
    ahead = env.record(1, 1)
    for _ in range(2):
        env.reset()
    assert env.record(1) == ahead
    env.begin([ahead, ahead])
    assert all(bool((value[0] == value[1]).all()) for value in env.true_signals().values())
