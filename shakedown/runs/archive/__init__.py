"""A run as one file that can be sent: `shakedown bundle RUN`, and `judge` and `report` of it.

A gzip-compressed tar archive of plain files (POSIX ustar), the manifest first: it names every member with its size and
SHA-256, and what the run came to when the archive was made. The same run gives the same archive.
"""

SUFFIX = ".shakedown.tar.gz"
MANIFEST = "manifest.json"
