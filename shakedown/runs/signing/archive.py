"""The statement on an archive of a run whose own statement holds. It is signed anew, since packing masks secrets."""

from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from shakedown.common import private
from shakedown.runs.archive.make import Made, make
from shakedown.runs.directory import RunDirectory
from shakedown.runs.signing import envelope, statement, verify


def make_signed(directory: RunDirectory, output: Path, pseudonyms: bool, key: EllipticCurvePrivateKey) -> Made:
    """Pack a signed run, and write the archive's statement beside it. Raises what `make` raises, and NotSigned where
    the run's own statement does not hold: nothing is packed then."""
    _, file = verify.file_of(str(directory.path))
    run, sha256 = verify.signature(file, key.public_key())
    verify.check_files(directory.path, run)
    target = output.with_name(output.name + statement.BESIDE)
    if target.exists():
        raise FileExistsError(17, "it is there already", str(target))

    def sign(copy: RunDirectory) -> None:
        states = []
        for node in copy.load().nodes:
            with suppress(FileNotFoundError):  # it was never reached
                states.append((node.name, copy.load_state(node.name)))
        made = statement.of_archive(output, copy, states, run, sha256, pseudonyms)
        with private.create(target) as source:
            source.write(envelope.signed(made.payload(), key))

    return make(directory, output, pseudonyms, sign)
