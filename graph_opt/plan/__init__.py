"""Planning: neutral kernel records in, a task graph with order, dependencies, guards and arena offsets out.

Knows no kernel code and no tile program: a record carries a program as opaque text.
"""
