"""Runs a command without a network. Only the loopback address 127.0.0.1 can be reached.

    python tools/without_network.py python course.py run --here

The exit status is 77 if the system does not allow it, because it is not Linux or forbids
namespaces. Otherwise it is the exit status of the command.
"""

import ctypes
import os
import socket
import struct
import sys
from pathlib import Path

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000  # of <linux/sched.h>
SET_FLAGS, UP = 0x8914, 0x1  # of <linux/sockios.h> and <linux/if.h>
CANNOT = 77


def cut_off():
    """Move this process into a network of its own.

    Raises:
        OSError: the system does not allow it.
    """
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    user, group = os.getuid(), os.getgid()
    if (
        unshare(NEW_NETWORK) != 0
    ):  # only root may do this; other users first make a namespace in which they may
        if unshare(NEW_USER | NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sh22x", b"lo", UP))


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit(CANNOT)
    try:
        cut_off()
    except OSError as error:
        print(f"The network cannot be cut here: {error}", file=sys.stderr)
        sys.exit(CANNOT)
    os.execvp(sys.argv[1], sys.argv[1:])
