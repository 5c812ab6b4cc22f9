"""Calling the driver's library: loading it, its binary interface, prepared calls, what its error codes and Xids mean.

Nothing here knows what a GPU's quantities are for (``readings``) or when they are read (the tiers beside this package).
"""
