"""The tile language: one kernel language from which everything that executes is generated.

Takes programs built by kernel families, users or a parser; gives their text form, verdicts of the verifier and
reference results of the interpreter. Knows no graph, no package and no code generator.
"""
