"""For every level of tests."""

from hypothesis import settings

# A test is not timed: on a busy machine any example may take longer than hypothesis' 200 ms.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
