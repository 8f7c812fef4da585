"""An artifact moves an arm: guard, controller, monitor and recorder; ``simulate:=true`` brings a simulated arm along.

    ros2 launch temporeal_bringup arm.launch.py artifact:=outputs/reach simulate:=true
    ros2 topic pub --once /arm1/mission/start std_msgs/msg/UInt64 '{data: 1}'

or, from the repository: ``ros2 launch launch/arm.launch.py ...``. Arguments: ``--show-args``. On the real robot read
docs/how-to/deploying-arm.md first.
"""

from pathlib import Path

from temporeal_bridge.launching.launch_files import description


def generate_launch_description():
    """What to start."""
    return description("arm", Path(__file__))
