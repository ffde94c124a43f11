"""`medusa`: heads that predict independently of each other."""
