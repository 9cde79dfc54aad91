"""The corpora can be read, say where each entry is from, and hold nothing that names a person or a machine."""

from __future__ import annotations

import re

import pytest

from bench.corpus import CORPUS, Excerpt, Incident, causes, excerpts, incidents, measure, reading, wilson
from shakedown import catalogue

JOBS, KERNEL = sorted((CORPUS / "jobs").glob("*.toml")), sorted((CORPUS / "kernel").glob("*.toml"))
ALLOWED = re.compile(r"192\.0\.2\.|198\.51\.100\.|203\.0\.113\.|127\.|0\.0\.0\.0")


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_jobs_excerpt_has_its_source_its_date_and_a_cause_in_one_word(path):
    for entry in excerpts(path):
        assert entry.source and entry.text.strip()
        assert re.match(r"20\d\d", entry.date), entry.source
        assert re.fullmatch(r"([a-z][a-z0-9-]+)?", entry.cause), entry.source


@pytest.mark.parametrize("path", KERNEL, ids=lambda path: path.stem)
def test_a_kernels_lines_have_their_source_and_their_part(path):
    for entry in incidents(path):
        assert entry.source and entry.lines and entry.part
        assert re.match(r"(19|20)\d\d", entry.date), entry.source


@pytest.mark.parametrize("path", [*JOBS, *KERNEL], ids=lambda path: path.stem)
def test_no_address_and_no_mailbox_of_a_real_machine_is_kept(path):
    text = path.read_text("utf-8")
    addresses = re.findall(r"(?<![\d.v-])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])", text)
    private = [each for each in addresses if re.match(r"10\.|172\.(1[6-9]|2\d|3[01])\.|192\.168\.", each)]
    assert not [each for each in private if not ALLOWED.match(each)]
    assert not re.findall(r"[\w.+-]+@[\w-]+\.(?:com|org|edu|net|io)\b", text)
    assert not re.findall(r"\b(?:hf_[A-Za-z0-9]{20}|ghp_\w{20}|AKIA\w{12}|eyJ\w{20})", text)


def test_the_halves_share_no_source():
    sources = [{entry.source for entry in excerpts(path)} for path in JOBS]
    for at, own in enumerate(sources):
        for other in sources[at + 1 :]:
            assert not own & other


# Of the failures at least this share is named, at most that share wrongly, and of the healthy excerpts so many alarm.
# The two that do end behind an import that failed, before the iterations that show that it was handled.
SHARES = {
    "seen": (0.95, 0.0, 2),
    "heldout": (0.95, 0.0, 0),
    "heldout-2": (0.95, 0.0, 0),
    "heldout-3": (0.95, 0.0, 0),
    "heldout-4": (0.95, 0.0, 0),
    "heldout-5": (0.85, 0.0, 0),
    "heldout-6": (0.95, 0.0, 0),
    "heldout-7": (0.95, 0.0, 0),
    "heldout-8": (0.95, 0.0, 0),
    "heldout-9": (0.95, 0.0, 0),
    "heldout-10": (0.93, 0.0, 0),
    "heldout-11": (0.95, 0.0, 0),
    "heldout-12": (0.95, 0.03, 0),
    "heldout-13": (0.88, 0.03, 0),
    "heldout-14": (0.83, 0.0, 0),
    "heldout-15": (0.95, 0.0, 0),
    "heldout-16": (0.95, 0.0, 0),
    "heldout-17": (0.95, 0.0, 0),
    "heldout-18": (0.95, 0.0, 0),
    "heldout-19": (0.95, 0.0, 0),
    "heldout-20": (0.9, 0.0, 0),
    "heldout-21": (0.9, 0.0, 0),
    "heldout-upper": (0.9, 0.03, 0),
    "heldout-upper-2": (0.88, 0.02, 0),
    "heldout-upper-3": (0.95, 0.0, 0),
    "heldout-upper-4": (0.83, 0.09, 0),
    "heldout-22": (0.84, 0.0, 0),
    "heldout-23": (0.88, 0.0, 1),
    "heldout-25": (0.84, 0.04, 0),
    "heldout-26": (0.87, 0.0, 0),
    "heldout-27": (0.72, 0.0, 0),
    "heldout-24": (0.84, 0.0, 0),
    "heldout-30": (0.92, 0.0, 0),
    "heldout-28": (0.92, 0.0, 0),
    "heldout-29": (0.95, 0.0, 0),
    "heldout-32": (0.95, 0.0, 0),
    "heldout-33": (0.95, 0.0, 0),
    "heldout-35": (0.95, 0.0, 0),
    "heldout-34": (0.95, 0.02, 0),
    "heldout-36": (0.95, 0.0, 0),
    "heldout-37": (0.93, 0.03, 0),
    "heldout-38": (0.95, 0.0, 0),
    "heldout-39": (0.9, 0.0, 0),
    "heldout-40": (0.95, 0.0, 0),
    "heldout-41": (0.95, 0.0, 0),
    "heldout-42": (0.95, 0.0, 0),
    "heldout-43": (0.92, 0.0, 0),
    "heldout-44": (0.9, 0.0, 0),
    "heldout-45": (0.94, 0.0, 0),
    "heldout-46": (0.95, 0.0, 0),
    "heldout-47": (1.0, 0.0, 0),
    "heldout-48": (0.94, 0.0, 0),
    "heldout-50": (0.95, 0.0, 0),
    "heldout-51": (0.97, 0.0, 0),
    "heldout-52": (0.93, 0.02, 0),
    "heldout-54": (0.95, 0.0, 0),
    "heldout-56": (0.96, 0.0, 0),
    "heldout-58": (0.94, 0.0, 0),
    "heldout-53": (0.95, 0.0, 0),
    "heldout-55": (0.95, 0.0, 0),
    "heldout-57": (0.95, 0.0, 0),
    "heldout-59": (0.92, 0.0, 0),
    "heldout-61": (0.96, 0.0, 0),
    "heldout-63": (0.81, 0.0, 0),
    "heldout-65": (0.9, 0.0, 0),
    "heldout-67": (0.9, 0.05, 0),
    "heldout-69": (0.99, 0.0, 0),
    "heldout-60": (0.94, 0.0, 0),
    "heldout-62": (0.93, 0.0, 0),
    "heldout-64": (0.95, 0.0, 0),
    "heldout-66": (0.95, 0.0, 0),
    "heldout-68": (0.89, 0.06, 0),
    "heldout-70": (0.95, 0.0, 0),
    "heldout-72": (0.95, 0.0, 0),
}


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_share_of_failures_that_the_catalogue_names_does_not_fall(path):
    readings = [reading(entry) for entry in excerpts(path)]
    failures = [each for each in readings if each not in ("healthy", "alarm")]
    named, wrong, alarms = SHARES[path.stem]
    assert failures.count("named") >= named * len(failures)
    assert failures.count("wrong") <= wrong * len(failures)
    assert readings.count("alarm") <= alarms


def test_each_cause_leads_to_entries_that_exist():
    used = {entry.cause for path in JOBS for entry in excerpts(path) if entry.cause}
    assert used == set(causes())
    missing = [name for names in causes().values() for name in names if catalogue.entry(name) is None]
    assert not missing


def test_an_entry_says_either_its_cause_or_that_the_job_went_well(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('[[excerpt]]\nsource = "a"\ndate = "2025"\ntext = "b"\n')
    with pytest.raises(ValueError, match="either a cause or healthy"):
        excerpts(path)
    path.write_text('[[excerpt]]\nsource = "a"\ndate = "2025"\ntext = "b"\nhealthy = true\n')
    assert excerpts(path) == [Excerpt("a", "2025", "b")]


def test_lines_of_a_kernel_are_read_without_the_empty_ones(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('[[incident]]\nsource = "a"\ndate = "2025"\npart = "gpu"\nfault = true\nlines = "b\\n\\nc\\n"\n')
    assert incidents(path) == [Incident("a", "2025", "gpu", ("b", "c"), fault=True)]


def test_the_corpus_of_the_kernel_is_recognised_and_harmless_lines_are_not_flagged():
    count = measure(incident for path in KERNEL for incident in incidents(path))
    faults, harmless = count.faults.total(), count.harmless.total()
    assert faults >= 300 and harmless >= 150
    assert count.recognised.total() / faults >= 0.95, count.missed
    assert len(count.flagged) / harmless <= 0.02, count.flagged


def test_a_shares_interval():
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(8, 10)
    assert (round(low, 3), round(high, 3)) == (0.49, 0.943)  # as R's binom.confint(8, 10, methods = "wilson")
    assert wilson(0, 10)[0] == 0.0 and wilson(10, 10)[1] == 1.0
