"""Several runs beside each other: what few scores are worth, read from run folders and told in words, JSON and one page."""
