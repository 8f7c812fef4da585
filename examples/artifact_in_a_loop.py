"""Run an artifact in a control loop of your own: numpy and onnxruntime, no torch, no simulator, no ROS.

python examples/artifact_in_a_loop.py [ARTIFACT]      (default: the one that train_and_look.py exports)
"""

import sys

import numpy as np

import temporeal as tr

artifact = tr.load_artifact(sys.argv[1] if len(sys.argv) > 1 else "outputs/examples/hover/artifact")
manifest = artifact.manifest
print(f"{manifest.robot} at {manifest.rate_hz:g} Hz: {', '.join(artifact.schema)} -> "
      f"{', '.join(command.name for command in manifest.commands)}")


def read_sensors() -> dict[str, np.ndarray]:
    """Stands for your sensors: the robot at rest at its home. Shapes, units and frames are in the manifest."""
    home = tr.load_robot(manifest.robot).home
    return {name: np.asarray(home.get(name, np.zeros(spec.shape)), np.float32)
            for name, spec in artifact.schema.items()}


artifact.reset()
for step in range(5):
    for name, value in artifact.act(read_sensors()).items():  # your robot: send it through temporeal_bridge's guard
        print(f"{step / manifest.rate_hz:.2f} s  {name} = {np.round(value, 4)}")
