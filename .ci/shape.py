"""The shape of the code, counted: ``make shape``. Exit status 1 where a limit is passed, unless ``--report``.

Counted is what ships and what measures, without tests. A function's length is from ``def`` to its last line, docstring
and inner functions included. An import counts wherever it stands, inside a function too, but not under
``TYPE_CHECKING``.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"robots": "temporeal.robots", "sim": "temporeal.sim", "policies": "temporeal.policies",
           "configs": "temporeal.configs", "benchmarks": "temporeal_benchmarks",
           "ros2_ws/src/temporeal_bridge/temporeal_bridge": "temporeal_bridge", "src/temporeal": "temporeal"}
"""Folder of the repository -> the name that it is imported by."""
MODULES, LINES, METHODS, MEDIAN, P90, LONGEST = 18, 500, 25, 8, 20, 80
TABLE = 0.7
"""Share of a module's lines from which on it counts as a table of data."""


def sources() -> dict[str, Path]:
    """Modules by import name."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.py"],
                            check=True, capture_output=True, text=True).stdout.split()
    out = {}
    for name in listed:
        for folder, package in FOLDERS.items():
            if name.startswith(folder + "/") and (ROOT / name).is_file():
                inner = name[len(folder) + 1:-3].replace("/", ".")
                out[f"{package}.{inner}".removesuffix(".__init__").removesuffix("__init__").rstrip(".")] = ROOT / name
    return out


def is_table(tree: ast.Module, count: int) -> bool:
    """Whether most of a module is one value after another."""
    data = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in tree.body
               if isinstance(node, ast.Assign | ast.AnnAssign))
    return data > TABLE * count


def imports(name: str, tree: ast.Module, known: set[str]) -> Iterator[str]:
    """The modules of ours that a module imports, wherever it does."""
    for_types = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    skipped = {id(inner) for node in for_types for statement in node.body for inner in ast.walk(statement)}
    for node in ast.walk(tree):
        found: list[str] = []
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [one if one in known else node.module for one in inner]
        yield from (one for one in found if one in known and one != name)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (strongly connected components, Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                out.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for node in graph:
        if node not in index:
            visit(node)
    return out


def shape() -> dict[str, object]:
    """Everything that is counted, and what passes a limit."""
    modules = sources()
    known, graph = set(modules), {}
    lengths: list[tuple[int, str]] = []
    long_modules, large = [], []
    for name, path in modules.items():
        text = path.read_text(encoding="utf-8").splitlines()
        tree = ast.parse("\n".join(text))
        graph[name] = set(imports(name, tree, known))
        if len(text) > LINES and not is_table(tree, len(text)):
            long_modules.append((len(text), name))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths.append(((node.end_lineno or node.lineno) - node.lineno + 1, f"{name}.{node.name}"))
            elif isinstance(node, ast.ClassDef):
                methods = sum(isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) for inner in node.body)
                if methods > METHODS:
                    large.append((methods, f"{name}.{node.name}"))
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in modules.values() if path.name != "__init__.py")
    counts = sorted(length for length, _ in lengths)
    return {
        "modules": len(modules), "functions": len(lengths), "median": statistics.median(counts),
        "p90": counts[int(0.9 * (len(counts) - 1))],
        "crowded folders": sorted(((n, folder) for folder, n in folders.items() if n > MODULES), reverse=True),
        "long modules": sorted(long_modules, reverse=True), "large classes": sorted(large, reverse=True),
        "long functions": sorted((row for row in lengths if row[0] > LONGEST), reverse=True),
        "circles": circles(graph),
    }


def main() -> int:
    """Print the shape; 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="exit 0 whatever is found")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args()
    found = shape()
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print(f"{found['modules']} modules, {found['functions']} functions: median {found['median']:g} lines "
              f"(at most {MEDIAN}), p90 {found['p90']} (at most {P90})")
    limits = {"crowded folders": f"over {MODULES} modules", "long modules": f"over {LINES} lines",
              "large classes": f"over {METHODS} methods", "long functions": f"over {LONGEST} lines",
              "circles": "none allowed"}
    passed = bool(found["median"] > MEDIAN or found["p90"] > P90)
    for what, limit in limits.items():
        rows = found[what]
        passed |= bool(rows)
        if not options.json:
            print(f"{what} ({limit}): {len(rows) or 'none'}")
            for row in rows:
                print("  " + (" <-> ".join(row) if what == "circles" else f"{row[0]:5}  {row[1]}"))
    return int(passed and not options.report)


if __name__ == "__main__":
    sys.exit(main())
