"""An artifact moves a hand: guard, controller, monitor and recorder; ``simulate:=true`` brings a simulated hand along.

    ros2 launch temporeal_bringup hand.launch.py artifact:=outputs/cube simulate:=true
    ros2 topic pub --once /hand1/mission/start std_msgs/msg/UInt64 '{data: 1}'

or, from the repository: ``ros2 launch launch/hand.launch.py ...``. Arguments: ``--show-args``. On the real robot read
docs/how-to/deploying-hand.md first.
"""

from pathlib import Path

from temporeal_bridge.launching.launch_files import description


def generate_launch_description():
    """What to start."""
    return description("hand", Path(__file__))
