"""A pretrained model of another library as a base: served by a process of its own, as chunks."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import artifacts, chunks
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.residual.opened import Opened, rows_of

if TYPE_CHECKING:
    from temporeal.policies.training.residual.base import FrozenBase
    from temporeal.policies.training.residual.settings import BaseConfig
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task


def served(config: BaseConfig, task: Task) -> Opened:
    """The model that ``config`` names, for ``task``. Its process begins with the worlds, and ends with this one."""
    from temporeal.policies.evaluate.measurement_recorder import with_recorder
    from temporeal.policies.pretrained.binding import read_by
    from temporeal.policies.pretrained.mapping import read_mapping
    from temporeal.policies.runs.pretrained.serving import Served, told
    from temporeal.policies.runs.pretrained.serving import opened as started
    from temporeal.policies.training.residual.bases import ChunkBase

    if not config.model:
        raise BadInput("base.expert=served: say which model: base.model=FOLDER base.map=FILE. (A residual's run does "
                       "not name it, where it was handed over: say it as when it was trained.)")
    model = Served(Path(config.model), Path(config.map))
    facts = model.settings()
    with told():
        mapping = read_mapping(model.mapping)
        names = read_by(mapping, task.schema)
        artifacts.check_rate(mapping.rate_hz, task)
    execute, size = config.execute or mapping.execute, task.robot.command(task.command).size

    class ServedBase(ChunkBase):
        """Its noise is drawn by the number of the inference, which is state."""

        server: Any = None

        def state_dict(self) -> dict[str, Any]:
            """The chunk under way, and how often the model was asked."""
            return {**super().state_dict(), "asked": self.server.number}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            """Restore it."""
            super().load_state_dict({name: value for name, value in state.items() if name != "asked"})
            self.server.number = int(state["asked"])

    def make(env: Env) -> FrozenBase:
        stack = ExitStack()
        atexit.register(stack.close)
        running = stack.enter_context(started(model, task, artifacts.picture_specs(env)))

        def infer(signals: chunks.Arrays) -> Any:
            with told():
                return running.infer(signals)

        rows = partial(rows_of, env, infer, names)
        with bad_input():
            made = ServedBase(rows, execute, running.server.rows, env.num_worlds, size, env.action_dim, config.title)
        made.server = running.server
        return made

    return Opened(config, with_recorder(task, names), task, make, execute=execute, digest=str(facts["files"]))
