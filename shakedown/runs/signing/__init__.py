"""Statements on runs that a third party can verify: what was judged, from which files, signed by a key of the site."""
