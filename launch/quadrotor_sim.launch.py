"""A simulated quadrotor flies an artifact, watched by its formula and recorded. No hardware needed.

    ros2 launch temporeal_bringup quadrotor_sim.launch.py artifact:=outputs/demo/artifact
    ros2 topic pub --once /cf1/mission/start std_msgs/msg/UInt64 '{data: 1}'

or, from the repository: ``ros2 launch launch/quadrotor_sim.launch.py artifact:=...``. To fly the real robot, start
Crazyswarm2 instead of ``robot_sim`` (``simulate:=false interface:=crazyswarm2``).
"""

from launch.actions import DeclareLaunchArgument
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node

from launch import LaunchDescription

ARGUMENTS = {
    "artifact": (None, "folder that `temporeal export` wrote"),
    "namespace": ("cf1", "namespace of the robot"),
    "robot": ("crazyflie", "robot, a folder below robots/"),
    "interface": ("odometry", "interface of the robot's ros.yaml: odometry, or crazyswarm2 as the real robot"),
    "transport": ("rclpy", "rclpy, or dds: the same nodes without rclpy"),
    "state": ("odom", "topic of the state, to remap it"),
    "autostart": ("false", "start the mission by itself, 3 s after the first state"),
    "simulate": ("true", "start the simulated robot; false: a real one is there"),
    "record": ("true", "record everything to out/bag"),
    "priority": ("auto", "normal, realtime, or auto: ahead of ordinary processes where that is permitted"),
    "seed": ("0", "seed of the simulated robot's first flight"),
    "out": ("outputs/flight", "folder for summaries and the bag"),
}


def generate_launch_description() -> LaunchDescription:
    """What to start."""
    value = {name: LaunchConfiguration(name) for name in ARGUMENTS}
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in ARGUMENTS.items()
    ]
    shared = {key: value[key] for key in ("robot", "interface", "out")}

    def node(executable: str, condition: str | None = None, **parameters: object) -> Node:
        return Node(
            package="temporeal_bridge", executable=executable, name=executable, namespace=value["namespace"],
            output="screen", arguments=["--transport", value["transport"]], parameters=[{**shared, **parameters}],
            remappings=[("odom", value["state"])],
            condition=IfCondition(value[condition]) if condition else None)

    return LaunchDescription([
        *declared,
        node("robot_sim", "simulate", seed=value["seed"], priority=value["priority"]),
        node("guard_node", artifact=value["artifact"], priority=value["priority"]),
        node("policy_node", artifact=value["artifact"], start=value["autostart"], priority=value["priority"]),
        node("monitor_node", artifact=value["artifact"]),
        node("recorder", "record", bag=PathJoinSubstitution([value["out"], "bag"])),
    ])
