"""A job that stands still: which collective it stands in, which ranks came to it, and whom the others wait for.

`model` is the answer, `records` reads what each rank left behind, `analysis` is the rule.
"""
