"""Who may change what is in a folder. Travels as text, also to a Python 3.6."""

import grp
import os
import pwd
import stat

STAFF = 50  # may write below /usr/local, and stands for root, on Debian (Debian Policy 4.6, 9.1.2)


def trusted(uid: int) -> bool:
    """Return whether a user is root or this user."""
    return uid in (0, os.geteuid())


def harmless(gid: int, uid: int) -> bool:
    """Return whether a group that may write adds no user: root's, the user's own of that name, Debian's staff."""
    if gid in (0, STAFF) and uid == 0:
        return True
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    return (group.gr_name, gid) == (user.pw_name, user.pw_gid) and set(group.gr_mem) <= {user.pw_name}


def closed(info: os.stat_result) -> bool:
    """Return whether only root and this user can lay, move or change what is in a folder, or in a file."""
    if not trusted(info.st_uid) or info.st_mode & 0o002:
        return False
    return not info.st_mode & 0o020 or harmless(info.st_gid, info.st_uid)


def place(folder: str) -> str:
    """Return the folder's own path, without links. OSError where another user could put another in its place or write
    in it; sticky folders such as /tmp count for what this user (or root) owns in them."""
    real = path = os.path.realpath(folder)
    if not closed(os.lstat(path)):
        raise PermissionError(1, "others may write there", path)
    while path != "/":
        path = os.path.dirname(path)
        info = os.lstat(path)
        if not closed(info) and not (trusted(info.st_uid) and info.st_mode & stat.S_ISVTX):
            raise PermissionError(1, "others may write there", path)
    return real


def own_file(path: str) -> str:
    """Return a path whose file another user could not exchange, nor any link on the way to it. Raises OSError."""
    here = path
    for _ in range(40):  # as many links as the kernel follows
        here = os.path.join(place(os.path.dirname(here)), os.path.basename(here))
        info = os.lstat(here)
        if not stat.S_ISLNK(info.st_mode):
            break
        here = os.path.join(os.path.dirname(here), os.readlink(here))
    if not closed(info):
        raise PermissionError(1, "others may write there", here)
    return path
