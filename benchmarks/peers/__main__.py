"""``python -m temporeal_benchmarks.peers [NAME ...]``: install the peers that are missing; optional ones by name."""

import sys

from temporeal_benchmarks.peers.process import PINS, PeerError, install_missing

if __name__ == "__main__":
    try:
        install_missing(sys.argv[1:] or tuple(PINS))
    except PeerError as error:
        sys.exit(f"peers: {error}")
