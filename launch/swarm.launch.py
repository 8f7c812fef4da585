"""An artifact flies several quadrotors, each in a namespace of its own: /cf1, /cf2, ...; one recorder for all.

    ros2 launch temporeal_bringup swarm.launch.py artifact:=outputs/demo/artifact simulate:=true count:=3
    ros2 topic pub --once /cf2/mission/start std_msgs/msg/UInt64 '{data: 1}'

They do not know of each other: keep their missions apart. Otherwise as quadrotor.launch.py.
"""

from pathlib import Path

from temporeal_bridge.launching.launch_files import description


def generate_launch_description():
    """What to start."""
    return description("swarm", Path(__file__))
