"""`specdec bench`: configurations against plain decoding."""
