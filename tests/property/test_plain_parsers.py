"""What the probe reads without `re`, against the expressions that say the same."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from shakedown.node import cmdline, pci, sysctl, verbs
from shakedown.node.settings import SETTINGS

ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)(\+?)=(.*)$")


def pieces(*parts: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(parts), max_size=12).map("".join)


@given(pieces("0", "00", "c1", "0000:", "0000:c1:00.0", ":", ".", "7", "8", "g", "A"))
def test_addresses_of_pci(name):
    assert pci.is_bdf(name) == bool(re.match(r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", name))


@given(pieces("net.", "ipv4.", "*", "conf", ".", "a", "ab"), pieces("net.", "ipv4.", "conf", ".", "a", "ab"))
def test_patterns_of_sysctl_d(pattern, key):
    assert "*" not in pattern or sysctl._fits(key, pattern) == fnmatchcase(key, pattern)


@given(pieces("lib", "bnxt_re", "-rdmav", "34", ".so", "-", "x"))
def test_names_of_providers(name):
    match = re.match(r"^lib(.+)-rdmav(\d+)\.so$", name)
    assert verbs.parse_provider(name) == ((match[1], int(match[2])) if match else None)


@given(pieces("a", "=", " ", "\t", '"', "b c", "iommu=pt"))
def test_words_of_a_command_line(text):
    assert cmdline.parse_words(text) == re.findall(r'(?:[^\s"]|"[^"]*")+', text)


@given(
    pieces(" ", "export ", "export", "GRUB_CMDLINE_LINUX", "_DEFAULT", "+", "=", '"quiet"', '"', "a b", "'", "#", "\\")
)
def test_assignments_of_grub(line):
    match = ASSIGNMENT.match(line)
    expected = {}
    if match:
        try:
            words = shlex.split(match[3], comments=True)
            expected = {match[1]: words[0] if words else ""}
        except ValueError:
            pass
    assert cmdline.parse_grub_defaults([line]) == expected


@given(pieces("net", "ipv4", ".", "/", "a", "_", "é", "@", ":", "-", "0", "\n", " "))
def test_keys_of_sysctl(detail):
    setting = SETTINGS["sysctl"]
    assert setting.is_about(detail) == (re.match("(?:" + setting.details + r")\Z", detail, re.ASCII) is not None)
