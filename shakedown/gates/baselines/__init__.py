"""What these nodes have done before, and whether a figure is worse than that.

`judge_against` is pure statistics: earlier values, a value, the direction in which it is better. docs/ledger.md says
how it works and how often it errs.
"""
