"""``python -m policies.cli.peers``: install the peers that are missing."""

import sys

from policies.cli.peers import PeerError, install_missing

if __name__ == "__main__":
    try:
        install_missing()
    except PeerError as error:
        sys.exit(f"peers: {error}")
