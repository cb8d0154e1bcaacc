"""From torch's operations to `ops`: names and tensor arguments on one side, sizes on the other."""

from torchledger.tracer.pricing.price import Priced, price
from torchledger.tracer.pricing.seen import Price, Seen, price_of, prices

__all__ = ["Price", "Priced", "Seen", "price", "price_of", "prices"]
