"""The functional core: values and arithmetic.

Nothing in here reads a clock, draws a random number, logs or does IO. Imports:
the standard library and NumPy.
"""
