"""Prices and costs: from the user's table, from AWS's Price List and from the table in this package."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.cost.known import currency_of as currency_of, known_prices as known_prices
    from cloudtrain.cost.prices import (
        Price as Price,
        PriceRow as PriceRow,
        Where as Where,
        find_price as find_price,
    )
    from cloudtrain.cost.so_far import Cost as Cost

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.cost.known": "currency_of known_prices",
        "cloudtrain.cost.prices": "Price PriceRow Where find_price",
        "cloudtrain.cost.so_far": "Cost",
    },
)
