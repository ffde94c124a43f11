"""Several engine processes behind one port; a front process without torch relays requests to them."""
