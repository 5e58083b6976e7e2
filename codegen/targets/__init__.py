"""Targets as data: host classes and Ascend chips with their memories, engines, rates and legal memory paths.

Takes a name and gives a frozen `Target`; knows nothing else. No number that describes a chip stands elsewhere.
"""
