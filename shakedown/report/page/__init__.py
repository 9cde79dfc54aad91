"""The report as one page: one file that needs no network, no server and nothing beside it. It opens from a disk and is
printed, sent and kept as it is; only the links to whole logs lead out of it, into the run directory.

Nothing that a node, a log or an inventory says is markup here: jinja2 escapes all of it, plots are images, and the
page's own policy lets no script or style run but its own two, by their digests.
"""
