"""Judge a recorded flight by a formula, and watch the formula while it flies. `pip install '.[spec]'` is enough.

python examples/formula_on_a_log.py [flight.csv]
"""

import sys
from pathlib import Path

import numpy as np

import temporeal as tr
from temporeal.robots.signals import SignalSpec, schema

file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data/flight.csv"
table = np.genfromtxt(file, delimiter=",", names=True)
dt = float(np.diff(table["time"])[0])  # s
signals = {"x": table["x"], "height": table["height"]}

known = schema(SignalSpec("x", (), "m", "w"), SignalSpec("height", (), "m"))
formula = tr.parse("F[0,3] (x > 1) & G[0,4] (height > 0.3)", known)

value = tr.robustness(formula, {name: column[:, None] for name, column in signals.items()}, dt)[0, 0]
print(f"robustness {value:.3f} m: {'satisfied' if value > 0 else 'violated'}")

monitor = tr.Monitor(formula, dt)
for k in range(len(table)):
    reading = monitor.update({name: column[k] for name, column in signals.items()})
    if reading.verdict != "undecided":
        print(f"decided at {reading.time_s:.2f} s: {reading.verdict}")
        break
