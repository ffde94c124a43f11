"""What the tests of multi-token prediction share."""
