"""Several engine processes behind one port: a front process that imports no torch, and relays requests to them."""
