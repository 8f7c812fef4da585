"""An artifact flies a quadrotor: guard, controller, monitor and recorder; ``simulate:=true`` simulates it, too.

    ros2 launch temporeal_bringup quadrotor.launch.py artifact:=outputs/demo/artifact simulate:=true
    ros2 topic pub --once /cf1/mission/start std_msgs/msg/UInt64 '{data: 1}'

or, from the repository: ``ros2 launch launch/quadrotor.launch.py ...``. Arguments: ``--show-args``. With the real robot
Crazyswarm2 runs instead of the simulation; read docs/how-to/deploying-quadrotor.md first.
"""

from pathlib import Path

from temporeal_bridge.launching.launch_files import description


def generate_launch_description():
    """What to start."""
    return description("quadrotor", Path(__file__))
