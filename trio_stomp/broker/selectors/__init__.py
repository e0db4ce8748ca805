"""Selectors: SQL-92 conditions on headers (JMS 1.1, 3.8.1).

Handles: parsing, evaluation, LIKE in bounded time.
Does not handle: the subscriptions that use them; see ``delivery``.
"""

from trio_stomp.broker.selectors._selector import Selector as Selector
from trio_stomp.broker.selectors._selector import SelectorCompiler as SelectorCompiler
