"""Double of isaaclab.sim.utils.stage."""


def create_new_stage():
    """Forget the assets of the simulation before."""
