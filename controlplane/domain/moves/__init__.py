"""Capacity that moves: from a wanted number to instances that come up, fall asleep or go.

A move is a level with a memory: the cycle that decides it writes it into the state, and every later
cycle, also of a controller that was started anew, goes on with it until the world shows it done.
"""
