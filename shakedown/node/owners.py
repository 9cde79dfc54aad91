"""Who may change what is in a folder. Travels as text, also to a Python 3.6."""

import grp
import os
import pwd

STAFF = 50  # may write below /usr/local, and stands for root, on Debian (Debian Policy 4.6, 9.1.2)


def trusted(uid: int) -> bool:
    """Root and ourselves."""
    return uid in (0, os.geteuid())


def harmless(gid: int, uid: int) -> bool:
    """Whether a group that may write adds nobody: root's, the user's own of that name, Debian's staff."""
    if gid in (0, STAFF) and uid == 0:
        return True
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    return (group.gr_name, gid) == (user.pw_name, user.pw_gid) and set(group.gr_mem) <= {user.pw_name}


def closed(info: os.stat_result) -> bool:
    """Whether nobody but root and ourselves can lay, move or change what is in a folder, or in a file."""
    if not trusted(info.st_uid) or info.st_mode & 0o002:
        return False
    return not info.st_mode & 0o020 or harmless(info.st_gid, info.st_uid)
