"""A marketplace as gateways know it: a table and keys that a test sets, and the use that gateways report.

It speaks `jobs.gateway.messages` over real HTTP, takes each numbered row in once, and can be away.
"""

from tests.fakes.control.book import Book as Book
from tests.fakes.control.child import TOKEN as TOKEN
from tests.fakes.control.child import ControlChild as ControlChild
from tests.fakes.control.rows import endpoint as endpoint
from tests.fakes.control.rows import grant as grant
from tests.fakes.control.rows import replica as replica
