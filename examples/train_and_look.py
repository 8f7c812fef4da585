"""Train a quadrotor to hover, judge it on fresh episodes, export it, and look at it.

python examples/train_and_look.py [seconds]      then: temporeal view --policy outputs/examples/hover
"""

import sys
from pathlib import Path

import temporeal as tr

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
out = Path("outputs/examples/hover")

run = tr.train("hover", seed=1, out=out, overwrite=True, settings={"algo.max_seconds": seconds})
found = tr.evaluate(run, episodes=200)
p = found.satisfied
print(f"P(satisfied) = {p.estimate:.3f}, 95 % interval [{p.low:.3f}, {p.high:.3f}]")
for clause in found.clauses:
    print(f"  {clause.satisfied.estimate:6.1%}  {clause.label}")
artifact = tr.export(run)
print(f"exported to {out / 'artifact'}: largest difference of its self-test {artifact.self_test().max_error:.1e}")
print(f"look at it: temporeal view --policy {out}")
