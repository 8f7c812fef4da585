"""``python -m temporeal_benchmarks.peers [NAME ... | all]``: install peers that are missing; without a name those that
the tests need."""

import sys

from temporeal_benchmarks.peers.install import LARGE, PINS, PeerError, how, install_missing, installed

if __name__ == "__main__":
    names = sys.argv[1:] or tuple(PINS)
    try:
        install_missing((*PINS, *LARGE) if names == ["all"] else names)
    except PeerError as error:
        sys.exit(f"peers: {error}")
    for name in LARGE:
        if not installed(name):
            print(f"{name}, which a benchmark compares with, is not installed: {how(name)}", file=sys.stderr)
