"""CUDA kernels without a GPU: against the CPU ones under numba's simulator, and compiled to PTX."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from temporeal.robots.spec import load_robot
from temporeal.sim.backends.quadrotor import make
from temporeal.sim.physics.quadrotor.fused import FusedHover

WITH_A_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is at hand")


@WITH_A_GPU
def test_cuda_without_a_gpu_says_what_to_do():
    with pytest.raises(RuntimeError, match="use device='cpu', or install"):
        make(load_robot("crazyflie"), 1, "motor_cmd", dt=0.002, device="cuda")


STEPS = """
import numpy as np, torch
from temporeal.robots.spec import load_robot
from temporeal.sim.physics.quadrotor import cuda as quadrotor_cuda, kernels as kernels
from temporeal.sim.backends.quadrotor import make
from tests_quadrotor import spread_params, commands

robot, n, dt = load_robot("crazyflie"), 18, 0.002
for command in ("motor_cmd", "ctbr_cmd"):
    backend = make(robot, n, command, dt=dt, threads=1)
    backend.set_params(torch.arange(n), spread_params(n))
    backend.reset(torch.arange(n), {})
    state = backend._state.clone().view(-1).numpy()
    kernel = getattr(quadrotor_cuda, "step_motor" if command == "motor_cmd" else "step_ctbr")
    for ctrl in commands(n, command, 3):
        backend.step(ctrl, 2)
        kernel[1, 32](state, backend._params.view(-1).numpy(), ctrl.numpy(), backend._nominal.numpy(),
                      np.float32(dt), 2, n)
    theirs = state.reshape(-1, kernels.FIELDS, 16).transpose(0, 2, 1).reshape(-1, kernels.FIELDS)[:n]
    ours = backend._state.numpy().transpose(0, 2, 1).reshape(-1, kernels.FIELDS)[:n]
    # six physics steps apart by rounding only: contraction and order of sums
    assert np.allclose(ours, theirs, rtol=2e-5, atol=2e-5), (command, np.abs(ours - theirs).max())
    assert np.abs(ours[:, 10:13]).max() > 0.01
print("agrees")
"""

HOVER = """
import warnings
from dataclasses import replace
import numpy as np, torch
from temporeal.robots.crazyflie.spec import L2F_PARAMETERS
from temporeal.sim.physics.quadrotor import fused_cuda as gpu
from temporeal.sim.physics.quadrotor.fused import DT, TRAINING, FusedHover, random_keys, shared_params

warnings.simplefilter("ignore", RuntimeWarning)  # words wrap around
n, task = 18, replace(TRAINING, episode_steps=4)
for options in ({"rotor": True, "history": 2}, {"privileged": False}):
    env = FusedHover(n, seed=3, task=task, threads=1, **options)
    keys, columns = tuple(random_keys(3)), env._obs.shape[2]
    state = env._state.clone().view(-1).numpy()
    obs, critic, *last = (torch.zeros_like(x).numpy() for x in (env._obs, env._critic, env._final, env._final_critic))
    reward, flags, results = (torch.zeros_like(x).numpy() for x in (env._reward, env._flags, env._episode))
    obs, critic = obs.reshape(2, -1), critic.reshape(2, -1)
    worlds = lambda flat: flat.reshape(-1, columns)[:, :n].T
    same = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)  # rounding, as above

    start = env.reset()
    gpu.start_all[1, 32](
        state, task.packed(), *keys, env.known, columns, obs[1], env.privileged, critic[1], n
    )
    same(worlds(obs[1]), start.actor)
    ended = 0
    for i in range(9):
        action = 0.334 + 0.3 * torch.randn(n, 4, generator=torch.Generator().manual_seed(i))
        step = env.step(action)
        gpu.hover_step[1, 32](
            state, action.numpy(), shared_params(L2F_PARAMETERS), task.packed(), np.float32(DT), *keys, env.known,
            columns, obs[1 - i % 2], obs[i % 2], env.privileged, critic[i % 2], *last, reward, *flags, *results, n,
        )
        done = (step.terminated | step.truncated).numpy()
        same(worlds(obs[i % 2]), step.obs.actor)
        same(reward[:n], step.reward)
        assert (flags[0, :n] == step.terminated.numpy()).all() and (flags[1, :n] == step.truncated.numpy()).all()
        same(last[0][:n][done], step.final_obs.actor[done])
        same(results[:, :n][:, done], torch.stack(list(step.info.values()))[:, done])
        if env.privileged:
            same(worlds(critic[i % 2]), step.obs.critic)
            same(last[1][:n][done], step.final_obs.critic[done])
        ended += done.sum()
    assert ended > n
print("agrees")
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [STEPS, HOVER])
def test_the_cuda_kernels_agree_with_the_cpu_ones_under_the_simulator(tmp_path, program):
    (tmp_path / "tests_quadrotor.py").write_text((Path(__file__).parents[2] / "backends/test_quadrotor.py").read_text())
    env = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.path.join(os.getcwd(), "src"), env.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "agrees", done.stderr


COMPILE_PTX = """
from types import SimpleNamespace
import numba.cuda.dispatcher
numba.cuda.dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(9, 0))  # no GPU is asked
from numba import cuda, types as t
from temporeal.sim.physics.quadrotor import cuda as quadrotor_cuda, fused_cuda as quadrotor_fused_cuda
a, c, flags = t.Array(t.float32, 1, "C"), t.Array(t.float32, 2, "C"), t.Array(t.boolean, 1, "C")
real, i, yes, keys = t.float32, t.int64, t.boolean, (t.uint32,) * 4
step = a, a, c, a, real, i, i
for kernel, arguments in (
    (quadrotor_cuda.step_motor, step),
    (quadrotor_cuda.step_ctbr, step),
    (quadrotor_fused_cuda.start_all, (a, a, *keys, i, i, a, yes, a, i)),
    (
        quadrotor_fused_cuda.hover_step,
        (a, c, a, a, real, *keys, i, i, a, a, yes, a, c, c, a, flags, flags, a, a, i),
    ),
):
    ptx, _ = cuda.compile_ptx(kernel.py_func, arguments, cc=(9, 0))
    assert ".entry" in ptx and "fma.rn.f32" in ptx
    assert ".f64" not in ptx, "a constant promotes to float64"
    assert ".local" not in ptx, "a tuple is not kept in registers"
print("compiles")
"""


def cuda_toolkit():
    """Folder of a CUDA toolkit with NVVM, or None."""
    given = os.environ.get("CUDA_HOME")
    candidates = [Path(given)] if given else sorted(Path("/usr/local").glob("cuda*"), reverse=True)
    for path in candidates:
        libraries = [*path.glob("lib*/libnvvm.so*"), *path.glob("nvvm/lib*/libnvvm.so*")]
        if libraries and (path / "nvvm" / "libdevice").is_dir():
            return path
    return None


@pytest.mark.skipif(cuda_toolkit() is None, reason="no CUDA toolkit (NVVM) on this machine")
@pytest.mark.slow
def test_the_cuda_kernels_compile_to_ptx_without_a_gpu():
    env = os.environ | {"CUDA_HOME": str(cuda_toolkit())}
    env.pop("NUMBA_ENABLE_CUDASIM", None)
    done = subprocess.run([sys.executable, "-c", COMPILE_PTX], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "compiles", done.stderr


@WITH_A_GPU
def test_the_fused_step_without_a_gpu_says_what_to_do():
    with pytest.raises(RuntimeError, match="use device='cpu', or install"):
        FusedHover(1, device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("options", [{"rotor": True, "history": 2}, {"privileged": False}])
def test_the_fused_step_on_a_gpu_follows_that_on_the_cpu(options):
    gpu, cpu = FusedHover(300, seed=5, device="cuda", **options), FusedHover(300, seed=5, **options)
    assert torch.allclose(gpu.reset().actor.cpu(), cpu.reset().actor, atol=2e-5)
    for i in range(20):
        action = 0.334 + 0.1 * torch.randn(300, 4, generator=torch.Generator().manual_seed(i))
        theirs, ours = gpu.step(action.cuda()), cpu.step(action)
        assert torch.allclose(theirs.final_obs.critic.cpu(), ours.final_obs.critic, atol=1e-3)
        assert torch.allclose(theirs.reward.cpu(), ours.reward, atol=1e-3)
        assert torch.equal(theirs.terminated.cpu(), ours.terminated)
