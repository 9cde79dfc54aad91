#!/usr/bin/env bash
# Verify a signed run directory by openssl, jq and sha256sum alone. docs/evidence.md shows it from here on.
set -euo pipefail
export LC_ALL=C
RUN=$(realpath "$1") KEY=$(realpath "$2")
cd "$(mktemp -d)"
jq -j .dsseEnvelope.payload "$RUN/statement.sigstore.json" | base64 -d > payload
jq -j '.dsseEnvelope.signatures[0].sig' "$RUN/statement.sigstore.json" | base64 -d > signature
{ printf 'DSSEv1 28 application/vnd.in-toto+json %d ' "$(stat -c %s payload)"; cat payload; } > signed
openssl dgst -sha256 -verify "$KEY" -signature signature signed
jq -r '.subject[] | .digest.sha256 + "  " + .name' payload > digests
(cd "$RUN" && sha256sum -c --strict --quiet) < digests
jq -r '.subject[].name, (.predicate.folders[] + "/"), "statement.sigstore.json"' payload | sort > listed
(cd "$RUN" && find . -mindepth 1 \( -type d -printf '%P/\n' -o -printf '%P\n' \)) | sort | diff listed -
test -z "$(find "$RUN" ! -type f ! -type d)"
jq -r .predicate.verdict payload
