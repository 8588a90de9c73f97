"""What tokens are worth in dollars: read by quotes, refreshed from feeds, typed in by an operator.

book.py    the price that counts now; an operator sets one
feeds.py   prices from feeds, where enough of them agree
price.py   one price, and exact arithmetic with it

feeds.refresh_prices (a Celery tick) | set_price (the admin) -> TokenPrice -> current(asset_id) -> Price
"""

from billing.prices.book import current, set_price
from billing.prices.price import Price

__all__ = ["Price", "current", "set_price"]
