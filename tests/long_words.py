"""A process whose arguments and environment look endless. Any user may make one: prctl(PR_SET_MM, PR_SET_MM_MAP) moves
both over memory that was never touched, which costs nothing until somebody reads it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

SIZE = 2 << 30  # bytes
NAME = "fifteen-letters"  # psutil looks for the rest of such a name in the arguments
_PROGRAM = f"""
import ctypes, struct, time
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
begin = libc.mmap(None, {SIZE}, 3, 0x4022, -1, 0)  # PROT_READ | PROT_WRITE; MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
libc.prctl(15, b"{NAME}", 0, 0, 0)
with open("/proc/self/stat") as file:
    text = file.read()
now = [0, 0, *map(int, text[text.rindex(")") + 4 :].split())]  # from the parent on: field n of proc(5) is now[n - 2]
code, stack, data, heap = now[24:26], now[26], now[43:45], now[45]
values = [*code, *data, heap, libc.sbrk(0), stack, *[begin, begin + {SIZE}] * 2, 0]
about = ctypes.create_string_buffer(struct.pack("12QIi", *values, 0, -1))
print(libc.prctl(35, 14, ctypes.byref(about), ctypes.c_ulong(104), ctypes.c_ulong(0)), flush=True)
time.sleep(60)
"""


@contextmanager
def process() -> Iterator[int]:
    """Run one; its pid."""
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            if child.stdout.readline() != "0\n":
                pytest.skip("this kernel has no PR_SET_MM_MAP")
            yield child.pid
        finally:
            child.kill()
