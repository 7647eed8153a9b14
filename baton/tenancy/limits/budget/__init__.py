"""Budgets of months: prepaid by their owners like limits, and nothing comes back with time.

What a frontend spent it says whole to each new owner, and the owner writes down what all of them
were charged. Pure: time is an argument, and messages and records are handed in and out.
"""
