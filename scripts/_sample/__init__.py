"""A made-up day of a broker, for ``make_diag_sample.py``."""

from _sample.shop import Message as Message
from _sample.shop import Shop as Shop
