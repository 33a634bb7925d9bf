"""Looks at what users hand in: is it what it is taken for, and what would mend it."""
