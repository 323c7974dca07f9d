"""Run a command in a separate network, which has only loopback.

``python private_network.py COMMAND ...``.  Peers that listen on all interfaces are then out of
reach for others.  Where the system does not allow this, the command runs as it is.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def leave_network() -> None:
    """Raises `OSError` where the system does not allow it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "there is no private network")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


if __name__ == "__main__":
    try:
        leave_network()
    except OSError as error:
        print(error, file=sys.stderr)
    os.execvp(sys.argv[1], sys.argv[1:])
