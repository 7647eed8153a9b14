"""The engine that takes the time of a model without computing one."""
