"""ament_python package of the launch files (kept in the repository's ``launch/``) and their parameters."""

from glob import glob

from setuptools import setup

NAME = "temporeal_bringup"

setup(
    name=NAME,
    version="0.1.0",
    description="Launch files and parameters of Temporeal",
    license="Apache-2.0",
    maintainer="Temporeal maintainers",
    maintainer_email="maintainers@temporeal.org",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", sorted(glob("launch/*.launch.py"))),
        (f"share/{NAME}/params", sorted(glob("params/*.yaml"))),
    ],
    python_requires=">=3.10",
    zip_safe=True,
)
