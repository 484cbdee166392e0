"""Networks, and how task parameters enter them."""
