"""`medusa`: heads that guess independently of each other."""
