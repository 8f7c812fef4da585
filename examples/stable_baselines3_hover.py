"""Train with stable-baselines3, export to the same artifact, judge it.

python examples/stable_baselines3_hover.py [steps]
"""

import sys

from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

import temporeal as tr
from temporeal.policies.export.external_policies import export_sb3
from temporeal.sim.adapters.stable_baselines3 import make_vec_env

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000

env = VecNormalize(make_vec_env("hover", 64, seed=1, history=4, randomize="default"))
model = PPO("MlpPolicy", env, n_steps=32, batch_size=512, device="cpu").learn(steps)
artifact = export_sb3(model, "outputs/examples/sb3")
print(f"self-test: largest difference {artifact.self_test().max_error:.1e}")
found = tr.evaluate("outputs/examples/sb3", episodes=100).satisfied
print(f"P(satisfied) = {found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]")
