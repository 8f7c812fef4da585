"""The doctor: its findings, their form for machines, and that failures count."""

from __future__ import annotations

import json

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.cli.preflight import machine, middleware, packages
from temporeal.policies.cli.verbs import doctor


def only(monkeypatch: pytest.MonkeyPatch, *checks: object) -> None:
    monkeypatch.setattr(doctor, "MACHINE_CHECKS", checks)


def test_json_has_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert status == (0 if report["ok"] else 1)
    found = {check["name"]: check for check in report["checks"]}
    assert {"python", "processor", "numba", "numba cache", "torch", "gpu", "dds", "rclpy", "ROS_DOMAIN_ID", "disk",
            "clock", "cma"} <= set(found)
    assert all(check["status"] in ("ok", "warn", "fail") for check in found.values())
    assert all(check["advice"] for check in found.values() if check["status"] != "ok")
    assert found["dds"]["status"] == "ok", found["dds"]
    assert "first message between two processes" in found["dds"]["found"]


@pytest.mark.parametrize(
    ("domain", "status"),
    [("0", "ok"), ("101", "ok"), ("150", "warn"), ("233", "fail"), ("-1", "fail"), ("home", "fail")])
def test_domain(domain: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    assert next(middleware.ros_domain()).status == status


def test_missing_optimizer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed_version", lambda name: None)
    (check,) = packages.falsification()
    assert (check.name, check.status) == ("cma", "warn")
    assert "pip install cma" in check.advice
    assert "--method random" in check.advice


def test_a_failure_is_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", "999")
    only(monkeypatch, packages.python, middleware.ros_domain)
    assert main(["doctor"]) == 1
    assert "not ready: ROS_DOMAIN_ID" in capsys.readouterr().out


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> object:
        raise OSError("no such luck")

    only(monkeypatch, broken, packages.python)
    assert main(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["failed"] == ["broken"]
    assert [check["name"] for check in report["checks"]] == ["broken", "python"]


def test_extra_packages_reads_markers() -> None:
    required = [
        "numpy", 'torch>=2; extra == "train"', "rosbags ; extra == 'robot'", 'numba-cuda[cu12]; extra == "gpu"',
        'cyclonedds; (sys_platform != "linux" or platform_machine != "aarch64") and extra == "robot"',
    ]
    assert packages.extra_packages(required, "train") == ["torch"]
    assert packages.extra_packages(required, "gpu") == ["numba-cuda"]
    assert "rosbags" in packages.extra_packages(required, "robot")
    assert packages.extra_packages(required, "dev") == []


def test_disk_full_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    full = type("Usage", (), {"free": 1e8})
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: full)
    check = next(machine.disk())
    assert (check.status, "0.10 GB" in check.found) == ("fail", True)


def test_clock_going_backwards_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([*range(10_000), *range(10_000)])
    monkeypatch.setattr(machine.time, "monotonic_ns", lambda: next(ticks))
    assert next(machine.clock()).status == "fail"
