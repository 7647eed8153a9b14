"""Monthly budgets: prepaid by their owners like limits, but without refill.

A frontend reports its total spending to each new owner, and the owner records the charges of all
frontends. Pure: time is an argument, and messages and records are passed in and out.
"""
