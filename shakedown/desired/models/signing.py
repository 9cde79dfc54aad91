"""Signatures on what a run saw and judged."""

from shakedown.desired.models.section import Section, key
from shakedown.desired.names import Text


class Signing(Section):
    """The site's signature on each run and check that is kept: the same on every host of a run."""

    key_file: Text = key(
        ...,
        "private key of this machine, ECDSA on P-256 in PEM, for its owner alone and without a passphrase",
        "~/.shakedown/site.key",
    )
    require_readings: bool = key(
        False, "a node that does not sign its reading with its SSH host key counts as unreached", True
    )
