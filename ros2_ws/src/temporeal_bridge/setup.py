"""ament_python package, and a plain pip package as well: ``pip install ros2_ws/src/temporeal_bridge``."""

from setuptools import find_packages, setup

NAME = "temporeal_bridge"

setup(
    name=NAME,
    version="0.1.0",
    description="Flies Temporeal policy artifacts on robots, over rclpy or plain DDS",
    license="Apache-2.0",
    maintainer="Temporeal maintainers",
    maintainer_email="maintainers@temporeal.org",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
    ],
    python_requires=">=3.10",
    install_requires=[
        "temporeal",
        "numpy",
        "onnxruntime",
        "PyYAML",
        "rosbags",
        # no wheel for Linux on ARM: there the nodes run on a sourced ROS 2 (transport rclpy)
        'cyclonedds; sys_platform != "linux" or platform_machine != "aarch64"',
    ],
    zip_safe=True,
    entry_points={
        "console_scripts": [
            f"policy_node = {NAME}.policy_node:main",
            f"worker_node = {NAME}.worker_node:main",
            f"guard_node = {NAME}.guard_node:main",
            f"robot_sim = {NAME}.robot_sim:main",
            f"camera_sim = {NAME}.camera_sim:main",
            f"monitor_node = {NAME}.monitor_node:main",
            f"recorder = {NAME}.recorder:main",
        ]
    },
)
