"""What the code knows better than people in docs/: `make docs` writes it, tests/unit/test_docs.py says when it is old.

A page is plain Markdown that people write. Between the lines `<!-- generated: NAME -->` and `<!-- end: NAME -->` stands
what a function of `blocks` says; docs/schemas/*.json and docs/images/house.svg are generated whole.
"""
