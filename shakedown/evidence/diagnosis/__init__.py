"""What a failed run died of, and where that began: one answer out of all that the nodes and the controller have said.

`model` is the answer, `signs` what it rests on, `origin` the rule, `run` and `offline` bring the signs together.
"""
